//! What the Rust programs of the client table share: the records, the checks and the lines that are printed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Records in each topic.
pub const COUNT: usize = 10_000;
/// What the two members of a group read before they stop.
pub const HALF: usize = COUNT / 2;
/// Partitions of the group's topic.
pub const GROUP_PARTITIONS: i32 = 4;
/// Limit of one step.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// All codecs.
pub const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// A sentence about what went wrong.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// How a capability ended, other than well.
pub enum Ending {
    /// The client has no such thing.
    Lacking(&'static str),
    /// It went wrong.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Ending {
    fn from(error: E) -> Self {
        Ending::Failed(error.into())
    }
}

/// Key of record `n`.
pub fn key(n: usize) -> String {
    format!("user-{}", n % 100)
}

/// Value of record `n`.
pub fn value(n: usize) -> String {
    format!("{n}:{}", format!("clicked on advert {}; ", n % 7).repeat(3))
}

/// What consumers of one topic processed, in the order in which they did.
#[derive(Default)]
pub struct Seen {
    records: Mutex<Records>,
    half_only: AtomicBool,
}

#[derive(Default)]
struct Records {
    places: HashSet<(i32, i64)>,
    numbers: Vec<usize>,
    homes: HashMap<String, i32>,
    last: HashMap<String, usize>,
    failure: Option<String>,
}

impl Seen {
    /// Leaves the second half of each partition out: the members of a group stop in the middle.
    pub fn half_only(&self, yes: bool) {
        self.half_only.store(yes, Ordering::SeqCst);
    }

    /// Takes a record and says whether it counts as processed.
    pub fn add(&self, partition: i32, offset: i64, key: &[u8], value: &[u8]) -> bool {
        if self.half_only.load(Ordering::SeqCst) && offset >= (HALF as i64) / i64::from(GROUP_PARTITIONS) {
            return false;
        }
        let mut records = self.records.lock().unwrap();
        let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
        let number = value.split(':').next().and_then(|number| number.parse::<usize>().ok());
        let failure = match number {
            None => Some(format!("record {partition}:{offset} has no number")),
            Some(n) if key != self::key(n) || value != self::value(n) => {
                Some(format!("record {partition}:{offset} is not what was sent"))
            }
            Some(_) if records.places.contains(&(partition, offset)) => {
                Some(format!("record {partition}:{offset} was processed twice"))
            }
            Some(_) if records.homes.get(&*key).is_some_and(|home| *home != partition) => {
                Some(format!("key {key} is in two partitions"))
            }
            Some(n) => records
                .last
                .get(&*key)
                .filter(|before| n <= **before)
                .map(|before| format!("key {key}: record {n} came after {before}")),
        };
        if records.failure.is_none() {
            records.failure = failure;
        }
        let number = number.unwrap_or_default();
        records.places.insert((partition, offset));
        records.numbers.push(number);
        records.homes.insert(key.to_string(), partition);
        records.last.insert(key.to_string(), number);
        true
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.lock().unwrap().numbers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Per partition, one past the last offset that was processed.
    pub fn positions(&self) -> BTreeMap<i32, i64> {
        let mut positions = BTreeMap::new();
        for (partition, offset) in &self.records.lock().unwrap().places {
            let position = positions.entry(*partition).or_default();
            *position = (offset + 1).max(*position);
        }
        positions
    }

    /// Tells the first wrong record.
    pub fn check(&self) -> Result<(), Error> {
        self.records.lock().unwrap().failure.clone().map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Also wants each record, once.
    pub fn check_complete(&self) -> Result<(), Error> {
        self.check()?;
        let records = self.records.lock().unwrap();
        let different = records.numbers.iter().collect::<HashSet<_>>().len();
        let all = records.numbers.len();
        if different == COUNT && all == COUNT {
            Ok(())
        } else {
            Err(format!("{all} records, {different} different ones, of {COUNT}").into())
        }
    }
}

/// Calls `step` until it says yes; fails after [`PATIENCE`].
pub fn wait_for(what: &str, mut step: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
    let start = Instant::now();
    while !step()? {
        if start.elapsed() > PATIENCE {
            return Err(format!("waited {} s for {what}", PATIENCE.as_secs()).into());
        }
    }
    Ok(())
}

/// The arguments, and which capabilities passed.
pub struct Table {
    pub bootstrap: String,
    pub prefix: String,
    passed: HashSet<String>,
}

impl Table {
    /// Reads `--bootstrap` and `--prefix`.
    pub fn of_arguments() -> Table {
        let args: Vec<String> = std::env::args().collect();
        let named = |name: &str| {
            let at = args.iter().position(|arg| arg == name).unwrap_or_else(|| panic!("{name} is missing"));
            args[at + 1].clone()
        };
        Table { bootstrap: named("--bootstrap"), prefix: named("--prefix"), passed: HashSet::new() }
    }

    /// Name of a topic or group.
    pub fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Runs one capability and prints its line. One that builds on a failed one fails with it.
    pub fn row(
        &mut self,
        capability: &str,
        needs: Option<&str>,
        step: impl FnOnce(&Table) -> Result<String, Ending>,
    ) {
        let ended = match needs {
            Some(needs) if !self.passed.contains(needs) => {
                Err(Ending::Failed(format!("builds on {needs}, which did not pass").into()))
            }
            _ => step(self),
        };
        let (result, detail) = match ended {
            Ok(detail) => {
                self.passed.insert(capability.to_owned());
                ("pass", detail)
            }
            Err(Ending::Lacking(why)) => ("n/a", why.to_owned()),
            Err(Ending::Failed(error)) => ("fail", error.to_string()),
        };
        println!("{}", serde_json::json!({ "capability": capability, "result": result, "detail": detail }));
    }
}
