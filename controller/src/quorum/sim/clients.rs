//! Clients that write and read through the proposers, and what they may see: the oracle of the run.
//!
//! Each write has a serial number of its own and answers with the value that it replaced; a block of ids is handed out
//! again and again; reads answer with the newest value. At the end every answer is compared with the log as it was
//! committed: no phantom, no value twice, no gap in the chain of predecessors, nothing acknowledged that is missing, and
//! nothing that was refused for certain; and no answer older than what anybody knew when it was asked for.

use super::ghost::{Broken, Ghost};
use super::machine::{Run, Up};
use super::world::{SimConfig, below, sleep_ms};
use crate::quorum::stored::StoredPayload;
use controller_core::{ClusterState, Decision};
use openraft::type_config::TypeConfigExt;
use parking_lot::Mutex;
use proto_types::error::ControllerError;
use proto_types::ids::{MetadataIndex, ProducerId};
use proto_types::metadata::{ConfigResource, MetadataChange};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KEYS: [&str; 3] = ["log.retention.ms", "log.retention.bytes", "log.roll.ms"];
const BLOCK: i64 = 1000;

/// The machines as clients find them.
pub(super) type Directory = Arc<Mutex<BTreeMap<u64, Up>>>;

/// What was asked, and what came of it.
#[derive(Debug, Clone)]
struct Record {
    asked: Asked,
    /// Everything that was known to be committed when it was asked for.
    floor: u64,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy)]
enum Asked {
    Set { key: &'static str, serial: u64 },
    Get { key: &'static str },
    Block,
}

#[derive(Debug, Clone)]
enum Outcome {
    /// The answer (the value before, the value, the first id) and the index at which it holds.
    Done(Option<u64>, u64),
    Refused,
    Unknown,
}

/// All that clients did.
#[derive(Default)]
pub(super) struct History {
    records: Mutex<Vec<Record>>,
    serials: AtomicU64,
    floor: AtomicU64,
    pub(super) stop: AtomicBool,
}

fn value(state: &ClusterState, key: &str) -> Option<u64> {
    state.configs().get(&ConfigResource::NodeDefault, key)?.parse().ok()
}

fn set(key: &str, serial: u64) -> MetadataChange {
    let (resource, name) = (ConfigResource::NodeDefault, key.to_owned());
    MetadataChange::ConfigSet { resource, name, value: Some(serial.to_string()) }
}

impl History {
    /// One client, until it is told to stop.
    pub(super) async fn client(self: Arc<Self>, directory: Directory, run: Run) {
        let mut guess = 1;
        while !self.stop.load(Ordering::Relaxed) {
            sleep_ms(below(120)).await;
            let up = {
                let up = directory.lock();
                let ids: Vec<u64> = up.keys().copied().collect();
                if ids.is_empty() {
                    continue;
                }
                if !up.contains_key(&guess) || below(20) == 0 {
                    guess = ids[below(ids.len() as u64) as usize];
                }
                up[&guess].clone()
            };
            match self.ask(&up, &run).await {
                Some(leader) => guess = leader,
                None => sleep_ms(below(50)).await,
            }
        }
    }

    /// One request to one machine; whom to ask next, if that is known.
    async fn ask(&self, up: &Up, run: &Run) -> Option<u64> {
        let key = KEYS[below(KEYS.len() as u64) as usize];
        let asked = match below(4) {
            0 => Asked::Get { key },
            1 => Asked::Block,
            _ => Asked::Set { key, serial: self.serials.fetch_add(1, Ordering::Relaxed) + 1 },
        };
        let floor = self.floor.load(Ordering::Relaxed);
        let proposed = up.proposer.propose(move |state, _| Ok(plan(state, asked)));
        let answer = SimConfig::timeout(Duration::from_secs(5), proposed).await;
        let mut next = None;
        let outcome = match answer {
            Ok(Ok((reply, MetadataIndex(index)))) => {
                self.floor.fetch_max(index, Ordering::Relaxed);
                Outcome::Done(reply, index)
            }
            Ok(Err(ControllerError::NotLeader { leader })) => {
                next = leader.map(|leader| leader.0);
                Outcome::Refused
            }
            Ok(Err(ControllerError::Busy(_))) => Outcome::Refused,
            // The machine has gone meanwhile, or it could not find out.
            Ok(Err(ControllerError::TimedOut | ControllerError::Shutdown)) | Err(_) => Outcome::Unknown,
            Ok(Err(ControllerError::Rejected(rejection))) => panic!("{rejection}"),
        };
        run.ghost.lock().note(matches!(outcome, Outcome::Done(..)));
        self.records.lock().push(Record { asked, floor, outcome });
        next
    }

    /// How many requests were answered.
    pub(super) fn done(&self) -> usize {
        self.records.lock().iter().filter(|record| matches!(record.outcome, Outcome::Done(..))).count()
    }

    /// Compares everything with the committed log.
    pub(super) fn check(&self, ghost: &Ghost) -> Result<(), Broken> {
        let mut values: BTreeMap<&str, BTreeMap<u64, u64>> = BTreeMap::new();
        let mut committed: BTreeMap<u64, u64> = BTreeMap::new();
        let mut blocks: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
        for (index, entry) in &ghost.committed {
            let StoredPayload::Changes(changes) = &entry.payload else { continue };
            for change in changes {
                match change {
                    MetadataChange::ConfigSet { name, value: Some(value), .. } => {
                        let serial: u64 = value.parse().map_err(|_| format!("phantom value {value}"))?;
                        let key = KEYS.iter().find(|key| *key == name).expect("our own keys");
                        values.entry(key).or_default().insert(*index, serial);
                        if let Some(first) = committed.insert(serial, *index) {
                            return Err(format!("C2: value {serial} was written at {first} and at {index}"));
                        }
                    }
                    MetadataChange::ProducerIdsAllocated { next } => {
                        blocks.entry(*index).or_default().push(next.0 - BLOCK);
                    }
                    _ => {}
                }
            }
        }
        let mut handed_out = BTreeMap::new();
        for record in self.records.lock().iter() {
            check_one(record, &values, &committed, &blocks, &mut handed_out)
                .map_err(|what| format!("{what}: {record:?}{}", surroundings(ghost, record)))?;
        }
        Ok(())
    }
}

/// The committed log around a record.
fn surroundings(ghost: &Ghost, record: &Record) -> String {
    let Outcome::Done(_, index) = record.outcome else { return String::new() };
    let near = ghost.committed.range(index.saturating_sub(6)..=index + 1);
    near.map(|(index, entry)| format!("\n  {index} {:?} {:?}", entry.id, entry.payload)).collect()
}

fn check_one(
    record: &Record,
    values: &BTreeMap<&str, BTreeMap<u64, u64>>,
    committed: &BTreeMap<u64, u64>,
    blocks: &BTreeMap<u64, Vec<i64>>,
    handed_out: &mut BTreeMap<u64, u64>,
) -> Result<(), Broken> {
    let (reply, index) = match (&record.outcome, record.asked) {
        (Outcome::Done(reply, index), _) => (*reply, *index),
        (Outcome::Refused, Asked::Set { serial, .. }) if committed.contains_key(&serial) => {
            return Err("C5: a write that was refused for certain was carried out".to_owned());
        }
        (Outcome::Refused | Outcome::Unknown, _) => return Ok(()),
    };
    if index < record.floor {
        return Err(format!("C2: an answer that is older than {}, which was known", record.floor));
    }
    let newest = |key: &str, upto: u64| {
        values.get(key).and_then(|values| values.range(..=upto).next_back()).map(|(_, serial)| *serial)
    };
    match record.asked {
        Asked::Set { key, serial } => {
            let at = committed.get(&serial).ok_or("C1 durable: an acknowledged write is gone")?;
            if *at != index {
                return Err(format!("C2: acknowledged at {index}, written at {at}"));
            }
            // Several writes of one entry follow each other in it.
            let before = index.checked_sub(1).and_then(|upto| newest(key, upto));
            let alone = newest(key, index) == Some(serial) && reply == before;
            if !alone && reply.is_none_or(|reply| committed.get(&reply) != Some(&index)) && reply != before {
                return Err(format!("C2: it should have replaced {before:?}"));
            }
        }
        Asked::Get { key } => {
            let expected = newest(key, index);
            // Within one entry it may come before or between the writes.
            let before = index.checked_sub(1).and_then(|upto| newest(key, upto));
            let within = reply.is_some_and(|reply| committed.get(&reply) == Some(&index));
            if reply != expected && reply != before && !within {
                return Err(format!("C2: a read that should have seen {expected:?}"));
            }
        }
        Asked::Block => {
            let first = reply.ok_or("a block has a first id")?;
            let there = blocks.get(&index).is_some_and(|blocks| blocks.contains(&(first as i64)));
            if !there {
                return Err("C1 durable: an acknowledged block is gone".to_owned());
            }
            if let Some(before) = handed_out.insert(first, index) {
                return Err(format!("C4: the block was handed out before, at {before}"));
            }
        }
    }
    Ok(())
}

fn plan(state: &ClusterState, asked: Asked) -> Decision<Option<u64>> {
    match asked {
        Asked::Set { key, serial } => Decision { changes: vec![set(key, serial)], reply: value(state, key) },
        Asked::Get { key } => Decision { changes: vec![], reply: value(state, key) },
        Asked::Block => {
            let first = state.producer_ids().next().0;
            let change = MetadataChange::ProducerIdsAllocated { next: ProducerId(first + BLOCK) };
            Decision { changes: vec![change], reply: u64::try_from(first).ok() }
        }
    }
}
