//! Spoiled requests: what a server does with headers, lengths, versions and bodies that are odd or wrong; and with APIs that
//! [`requests`](super::requests) does not know.
//!
//! Each begins with the valid request of its API and version. An answer that is that of the valid request is noted as "as
//! valid", so that a difference there is told once.

use std::collections::{BTreeMap, BTreeSet};

use kafka_wire_core::ApiKey;

use super::record::{Findings, ranges};
use super::requests::Question;
use super::wire::{Outcome, framed};
use super::world::World;
use super::{Announced, Lines};
use crate::oracle::schemas::defaults::Requests;

/// Bytes of key, version and correlation id, before the client id.
const FIXED_HEADER: usize = 8;
/// The client id of the valid requests, with its length.
const CLIENT_ID: &[u8] = b"\0\x05probe";
/// How many places a request is cut at, at most.
const CUTS_MAX: usize = 60;
/// Keys above Kafka's highest that are asked for too.
const KEYS_BEYOND: [i16; 4] = [-1, 96, 9_999, i16::MAX];
const HIGHEST_KEY: i16 = 95;

/// Spoils every valid question, and asks for every key and version that there is or is not.
pub(super) fn observe(
    world: &World,
    questions: &[Question],
    announced: &[Announced],
    findings: &mut Findings,
) {
    let mut versions: BTreeMap<&str, Vec<&Question>> = BTreeMap::new();
    for question in questions.iter().filter(|question| question.is_valid()) {
        versions.entry(question.api()).or_default().push(question);
    }
    for questions in versions.values() {
        spoil_all(world, questions, findings);
    }
    ask_for_versions(world, announced, findings);
    ask_for_keys(world, announced, findings);
    let known: BTreeSet<&str> = versions.keys().copied().collect();
    let others = announced
        .iter()
        .filter(|(key, ..)| ApiKey::try_from(*key).map_or(true, |key| !known.contains(key.name())));
    ask_others_well(world, others, findings);
}

fn spoil_all(world: &World, questions: &[&Question], findings: &mut Findings) {
    for question in questions {
        let valid = findings.lines(&question.label, question.version).cloned().unwrap_or_default();
        for (what, frame) in spoiled(question) {
            let lines = as_valid(question.ask_instead(world, &frame), &valid);
            findings.note(&format!("{}/{what}", question.api()), question.version, lines);
        }
        let lines = cut_everywhere(world, question);
        findings.note(&format!("{}/cut short", question.api()), question.version, lines);
    }
}

fn as_valid(lines: Lines, valid: &Lines) -> Lines {
    if lines == *valid { outcome("as valid") } else { lines }
}

fn outcome(word: &str) -> Lines {
    Lines::from([("outcome".to_owned(), word.to_owned())])
}

/// The spoiled forms of a request.
fn spoiled(question: &Question) -> Vec<(&'static str, Vec<u8>)> {
    let whole = &question.frame[4..];
    let (fixed, rest) = whole.split_at(FIXED_HEADER);
    let rest = rest.strip_prefix(CLIENT_ID).expect("valid requests name the probe");
    let with_client = |client: &[u8]| framed(&[fixed, client, rest].concat());
    let mut forms = vec![
        ("null client id", with_client(&[0xff, 0xff])),
        ("client id of negative length", with_client(&[0xff, 0xfe])),
        ("empty client id", with_client(&[0, 0])),
        ("client id that is not UTF-8", with_client(&[0, 2, 0xff, 0xfe])),
        ("client id longer than the request", with_client(&[0x7f, 0xff, b'x'])),
        ("bytes behind the request", framed(&[whole, &[1, 2, 3]].concat())),
        ("body of zeros", framed(&[fixed, CLIENT_ID, &[0; 64]].concat())),
        ("body of ones", framed(&[fixed, CLIENT_ID, &[0xff; 64]].concat())),
        ("no body", framed(&[fixed, CLIENT_ID].concat())),
    ];
    if question.flexible {
        // One tagged field, number 99, of three bytes.
        const UNKNOWN: &[u8] = &[1, 99, 3, 7, 7, 7];
        let in_header = [fixed, CLIENT_ID, UNKNOWN, &rest[1..]].concat();
        forms.push(("unknown tagged field in the header", framed(&in_header)));
        let in_body = [&whole[..whole.len() - 1], UNKNOWN].concat();
        forms.push(("unknown tagged field in the body", framed(&in_body)));
        let lying = [&whole[..whole.len() - 1], &[1, 99, 100, 7]].concat();
        forms.push(("tagged field longer than the request", framed(&lying)));
        let twice = [&whole[..whole.len() - 1], &[2, 99, 1, 7, 99, 1, 7]].concat();
        forms.push(("tagged field twice", framed(&twice)));
        let backwards = [&whole[..whole.len() - 1], &[2, 99, 1, 7, 98, 1, 7]].concat();
        forms.push(("tagged fields out of order", framed(&backwards)));
        let endless = [&whole[..whole.len() - 1], &[0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
        forms.push(("number of tagged fields without an end", framed(&endless)));
    }
    forms
}

/// Sends the request cut at many places, each time with the length of what is left.
fn cut_everywhere(world: &World, question: &Question) -> Lines {
    let whole = &question.frame[4..];
    let step = whole.len().div_ceil(CUTS_MAX).max(1);
    let mut places: BTreeMap<&str, BTreeSet<i16>> = BTreeMap::new();
    for at in (0..whole.len()).step_by(step) {
        let outcome = world.open().exchange(&framed(&whole[..at]));
        let at = i16::try_from(at).expect("requests of the probe are small");
        places.entry(outcome.word()).or_default().insert(at);
    }
    places.into_iter().map(|(word, places)| (format!("{word} when cut at"), ranges(&places))).collect()
}

/// Versions around what is announced: there is no answer to what is not served.
fn ask_for_versions(world: &World, announced: &[Announced], findings: &mut Findings) {
    for (key, first, last) in announced.iter().filter(|(key, ..)| *key != 18) {
        for (what, version) in [
            ("version below the first", first.checked_sub(1)),
            ("version above the last", last.checked_add(1)),
            ("largest version", Some(i16::MAX)),
            ("smallest version", Some(i16::MIN)),
        ] {
            let Some(version) = version else { continue };
            findings.note(&format!("key {key}/{what}"), version, outcome(zeros(world, *key, version).word()));
        }
    }
}

/// Every key: those that only the reference has are asked for with a body of zeros, in their first and last version.
fn ask_for_keys(world: &World, announced: &[Announced], findings: &mut Findings) {
    for key in (0..=HIGHEST_KEY).chain(KEYS_BEYOND) {
        let versions = match announced.iter().find(|(other, ..)| *other == key) {
            Some((_, first, last)) => BTreeSet::from([*first, *last]),
            None => BTreeSet::from([0]),
        };
        for version in versions {
            findings.note(&format!("key {key}/zeros"), version, outcome(zeros(world, key, version).word()));
        }
    }
}

/// What only the reference serves, in all its versions: well made after Kafka's descriptions, with every field at its default.
fn ask_others_well<'a>(world: &World, others: impl Iterator<Item = &'a Announced>, findings: &mut Findings) {
    let requests = Requests::load().expect("the descriptions of Kafka's messages are there");
    for (key, first, last) in others {
        for version in *first..=*last {
            let rest = requests.after_client_id(*key, version).expect("Kafka describes what it serves");
            let rest = rest.expect("every type is known");
            let fixed = [&key.to_be_bytes()[..], &version.to_be_bytes(), &[0, 0, 0, 41], CLIENT_ID];
            let answer = world.open().exchange(&framed(&[fixed.concat(), rest].concat()));
            findings.note(&format!("key {key}/all defaults"), version, outcome(answer.word()));
        }
    }
}

fn zeros(world: &World, key: i16, version: i16) -> Outcome {
    let header = [&key.to_be_bytes()[..], &version.to_be_bytes(), &[0, 0, 0, 41], CLIENT_ID];
    world.open().exchange(&framed(&[header.concat(), vec![0; 64]].concat()))
}
