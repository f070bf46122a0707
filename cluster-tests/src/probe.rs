//! The raw-protocol probe: requests as bytes, good ones and bad ones, and what a server does with each.
//!
//! [`observe`] asks a server everything: [`requests`] builds valid requests for every API and version, [`mutations`] spoils
//! them (cut short, too long, unknown versions and tagged fields, odd client ids, bodies of zeros), [`scripts`] plays what
//! takes several steps on a connection. What comes back becomes lines (`answer`): answered, closed or silence, which header,
//! whether the bytes are canonical, and every field. What Apache Kafka did is kept in a file of the repository ([`record`]);
//! what another server does otherwise is a [`record::Difference`], and each needs a verdict in `docs/differences.md`
//! ([`verdicts`]).

mod answer;
pub mod mutations;
pub mod record;
pub mod requests;
mod requests_of_admin;
mod requests_of_groups;
pub mod scripts;
mod scripts_of_epochs;
mod scripts_of_groups;
mod tree;
pub mod verdicts;
mod wire;
pub mod world;

use std::collections::BTreeMap;

use record::Findings;
use world::World;

/// What one request led to: a path to a field of the answer, or a word about the exchange, and its value.
pub type Lines = BTreeMap<String, String>;

/// An API as a server announces it: key, first and last version.
pub type Announced = (i16, i16, i16);

/// Asks the server at `address` everything. `announced` are the APIs of the server that it is to be compared with, or none
/// to take its own. `restart` stops its only node and starts it again where it was.
pub fn observe(address: &str, announced: Option<&[Announced]>, restart: impl FnOnce()) -> Findings {
    let world = World::prepare(address);
    let own = world.announced();
    let announced = announced.map_or_else(|| own.clone(), <[Announced]>::to_vec);
    let mut findings = Findings::default();
    findings.announced = own;
    let questions = requests::all(&world);
    for question in &questions {
        findings.note(&question.label, question.version, question.ask(&world));
    }
    findings.request_crc = requests::crc(&world, &questions);
    mutations::observe(&world, &questions, &announced, &mut findings);
    scripts::observe(&world, &mut findings);
    scripts::observe_restart(&world, restart, &mut findings);
    findings
}
