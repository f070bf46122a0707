//! What the members of the group saw, with times of one clock that only goes forward, and the rules that it is held to.
//!
//! A member holds its partitions from the moment at which SyncGroup has answered until it is told that it has lost them; it
//! does not give up by itself when nobody answers, so that what the ledger measures is what the coordinators tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use cluster_tests::clock::Stopwatch;

/// Next offsets by partition.
pub(super) type Offsets = BTreeMap<i32, i64>;

/// Lines of the story that a failure tells.
const STORY_LINES: usize = 150;

/// One member's hold of its partitions in one generation.
#[derive(Clone, Debug)]
struct Holding {
    member: usize,
    id: String,
    generation: i32,
    partitions: BTreeSet<i32>,
    from: Duration,
    until: Option<Duration>,
}

/// What a running member has reached in its present generation.
#[derive(Clone, Debug, Default)]
struct Standing {
    held: Option<(i32, BTreeSet<i32>)>,
    /// When the last heartbeat was sent that was answered with NONE.
    heartbeat: Option<Duration>,
    /// When the last commit was sent that was accepted.
    commit: Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    holdings: Vec<Holding>,
    standings: BTreeMap<usize, Standing>,
    /// The largest acknowledged commits.
    floors: Offsets,
    /// The largest commits that anybody asked for.
    ceilings: Offsets,
    commits: u64,
    fetches: u64,
    story: Vec<String>,
    faults: Vec<String>,
}

/// How often and how long partitions had two owners in different generations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overlaps {
    pub(super) count: usize,
    pub(super) longest: Duration,
}

/// Shared by all members and the test.
#[derive(Debug)]
pub(super) struct Ledger {
    clock: Stopwatch,
    partitions: i32,
    state: Mutex<State>,
}

impl Ledger {
    pub(super) fn new(partitions: i32) -> Self {
        Self { clock: Stopwatch::start(), partitions, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    pub(super) fn note(&self, what: impl AsRef<str>) {
        let line = format!("{:9.3} {}", self.now().as_secs_f64(), what.as_ref());
        self.state().story.push(line);
    }

    /// A rule was broken; the test ends with it.
    pub(super) fn fault(&self, what: String) {
        self.note(format!("FAULT {what}"));
        self.state().faults.push(what);
    }

    /// Panics with the story so far.
    pub(super) fn fail(&self, what: &str) -> ! {
        let state = self.state().story.clone();
        let story = state[state.len().saturating_sub(STORY_LINES)..].join("\n");
        panic!("{what}\n{story}\n{what}");
    }

    pub(super) fn assert_no_fault(&self) {
        let faults = self.state().faults.join("\n");
        if !faults.is_empty() {
            self.fail(&faults);
        }
    }

    /// A member is about to join.
    pub(super) fn enters(&self, member: usize) {
        self.note(format!("member {member} begins"));
        self.state().standings.insert(member, Standing::default());
    }

    /// A member is gone, with or without a word to the group.
    pub(super) fn quits(&self, member: usize) {
        self.note(format!("member {member} is gone"));
        let now = self.now();
        let mut state = self.state();
        state.standings.remove(&member);
        end_holdings(&mut state, member, now);
    }

    pub(super) fn is_gone(&self, member: usize) -> bool {
        !self.state().standings.contains_key(&member)
    }

    /// SyncGroup gave the member its part.
    pub(super) fn holds(&self, member: usize, id: &str, generation: i32, partitions: &BTreeSet<i32>) {
        self.note(format!("member {member} holds {partitions:?} in generation {generation} as {id}"));
        let from = self.now();
        let mut state = self.state();
        state.standings.entry(member).or_default().held = Some((generation, partitions.clone()));
        let partitions = partitions.clone();
        state.holdings.push(Holding { member, id: id.to_owned(), generation, partitions, from, until: None });
    }

    /// The member was told that the partitions are not its own any more.
    pub(super) fn releases(&self, member: usize, why: &str) {
        self.note(format!("member {member} holds nothing: {why}"));
        let now = self.now();
        let mut state = self.state();
        state.standings.insert(member, Standing::default());
        end_holdings(&mut state, member, now);
    }

    pub(super) fn heartbeat_accepted(&self, member: usize, sent: Duration) {
        self.state().standings.entry(member).or_default().heartbeat = Some(sent);
    }

    /// The largest acknowledged commits so far: whoever asks from now on must be told these or later ones.
    pub(super) fn floors(&self) -> Offsets {
        self.state().floors.clone()
    }

    /// A commit is about to be sent.
    pub(super) fn commit_begins(&self, positions: &Offsets) {
        let mut state = self.state();
        for (partition, position) in positions {
            let ceiling = state.ceilings.entry(*partition).or_default();
            *ceiling = (*ceiling).max(*position);
        }
    }

    /// The commit was accepted; `floors` is from before it was sent.
    pub(super) fn commit_accepted(
        &self,
        member: usize,
        sent: Duration,
        positions: &Offsets,
        floors: &Offsets,
    ) {
        for (partition, position) in positions {
            if let Some(floor) = floors.get(partition).filter(|floor| *floor > position) {
                self.fault(format!(
                    "member {member} may commit {position} of partition {partition} after {floor} was acknowledged"
                ));
            }
        }
        let mut state = self.state();
        state.commits += 1;
        state.standings.entry(member).or_default().commit = Some(sent);
        for (partition, position) in positions {
            let floor = state.floors.entry(*partition).or_default();
            *floor = (*floor).max(*position);
        }
    }

    /// An OffsetFetch, sent after `floors` was taken, was answered; -1 stands for no commit.
    pub(super) fn told(&self, who: &str, floors: &Offsets, answer: &Offsets) {
        let ceilings = {
            let mut state = self.state();
            state.fetches += 1;
            state.ceilings.clone()
        };
        for (partition, told) in answer {
            let floor = floors.get(partition).copied().unwrap_or(-1);
            let ceiling = ceilings.get(partition).copied().unwrap_or(-1);
            if *told < floor || *told > ceiling {
                self.fault(format!(
                    "{who} is told {told} for partition {partition}: {floor} was acknowledged before, \
                     nobody asked for more than {ceiling}"
                ));
            }
        }
    }

    /// The generation in which all members stand, every partition is held, and since `mark` heartbeats and commits were
    /// sent that were accepted; or why not.
    pub(super) fn stable_generation(&self, mark: Duration) -> Result<i32, String> {
        let state = self.state();
        let (mut generations, mut held) = (BTreeSet::new(), BTreeSet::new());
        for (member, standing) in &state.standings {
            let Some((generation, partitions)) = &standing.held else {
                return Err(format!("member {member} holds nothing"));
            };
            if standing.heartbeat.is_none_or(|sent| sent < mark) {
                return Err(format!("member {member} has no answer NONE to a heartbeat"));
            }
            if !partitions.is_empty() && standing.commit.is_none_or(|sent| sent < mark) {
                return Err(format!("member {member} has no commit accepted"));
            }
            generations.insert(*generation);
            held.extend(partitions);
        }
        match (generations.first(), generations.len()) {
            (Some(generation), 1) if held == (0..self.partitions).collect() => Ok(*generation),
            _ => Err(format!("generations {generations:?} hold {held:?}")),
        }
    }

    /// Holds all holdings to the rules: no partition with two owners within one generation, and across generations for
    /// `limit` at most.
    pub(super) fn check_owners(&self, limit: Duration) -> Overlaps {
        let now = self.now();
        let holdings = self.state().holdings.clone();
        let mut overlaps = Overlaps::default();
        for (index, one) in holdings.iter().enumerate() {
            for other in &holdings[index + 1..] {
                let Some(partition) = one.partitions.intersection(&other.partitions).next() else { continue };
                if one.id == other.id {
                    continue;
                }
                // However far apart in time: a generation has one assignment.
                if one.generation == other.generation {
                    self.fault(format!("partition {partition} has two owners: {one:?}, {other:?}"));
                }
                let ends = one.until.unwrap_or(now).min(other.until.unwrap_or(now));
                let both = ends.saturating_sub(one.from.max(other.from));
                if both > limit {
                    self.fault(format!(
                        "partition {partition} has two owners for {both:?}: {one:?}, {other:?}"
                    ));
                }
                overlaps.count += usize::from(!both.is_zero());
                overlaps.longest = overlaps.longest.max(both);
            }
        }
        overlaps
    }

    /// Accepted commits, answered fetches, generations.
    pub(super) fn counts(&self) -> (u64, u64, usize) {
        let state = self.state();
        let generations: BTreeSet<i32> = state.holdings.iter().map(|holding| holding.generation).collect();
        (state.commits, state.fetches, generations.len())
    }
}

fn end_holdings(state: &mut State, member: usize, now: Duration) {
    let open =
        state.holdings.iter_mut().filter(|holding| holding.member == member && holding.until.is_none());
    open.for_each(|holding| holding.until = Some(now));
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(6);

    fn offsets(offset: i64) -> Offsets {
        [(3, offset)].into()
    }

    fn holding(id: &str, generation: i32, partitions: &[i32], from: u64, until: u64) -> Holding {
        Holding {
            member: 0,
            id: id.to_owned(),
            generation,
            partitions: partitions.iter().copied().collect(),
            from: Duration::from_secs(from),
            until: Some(Duration::from_secs(until)),
        }
    }

    /// Faults and the longest overlap of two holdings.
    fn judged(one: Holding, other: Holding) -> (usize, Duration) {
        let ledger = Ledger::new(12);
        ledger.state().holdings = vec![one, other];
        let overlaps = ledger.check_owners(LIMIT);
        let faults = ledger.state().faults.len();
        (faults, overlaps.longest)
    }

    #[test]
    fn two_owners_are_seen() {
        let one = || holding("a", 1, &[3, 4], 0, 10);
        assert_eq!(judged(one(), holding("b", 1, &[5], 0, 10)), (0, Duration::ZERO));
        // One after the other within one generation is wrong, too.
        assert_eq!(judged(one(), holding("b", 1, &[4], 20, 30)).0, 1);
        assert_eq!(judged(one(), holding("b", 2, &[4], 10, 30)), (0, Duration::ZERO));
        assert_eq!(judged(one(), holding("b", 2, &[4], 4, 30)), (0, LIMIT));
        assert_eq!(judged(one(), holding("b", 2, &[4], 3, 30)), (1, Duration::from_secs(7)));
    }

    #[test]
    fn lost_commits_and_commits_that_nobody_made_are_seen() {
        let ledger = Ledger::new(12);
        let faults = || ledger.state().faults.len();
        let now = Duration::ZERO;
        ledger.told("w", &ledger.floors(), &offsets(-1));
        ledger.commit_begins(&offsets(7));
        // Its outcome is not known.
        ledger.told("w", &ledger.floors(), &offsets(-1));
        ledger.told("w", &ledger.floors(), &offsets(7));
        let before = ledger.floors();
        ledger.commit_accepted(0, now, &offsets(7), &before);
        ledger.told("w", &before, &offsets(-1));
        assert_eq!(faults(), 0);
        ledger.told("w", &ledger.floors(), &offsets(6));
        assert_eq!(faults(), 1, "it was lost");
        ledger.told("w", &ledger.floors(), &offsets(8));
        assert_eq!(faults(), 2, "nobody asked for it");
        ledger.commit_accepted(1, now, &offsets(5), &ledger.floors());
        assert_eq!(faults(), 3, "an owner of old could commit");
    }

    #[test]
    fn a_group_is_stable_when_all_stand_in_one_generation_and_were_answered() {
        let ledger = Ledger::new(2);
        let mark = Duration::from_secs(1);
        let answered = |member, time| {
            ledger.heartbeat_accepted(member, time);
            ledger.commit_accepted(member, time, &Offsets::new(), &Offsets::new());
        };
        ledger.holds(0, "a", 4, &[0].into());
        ledger.holds(1, "b", 4, &[1].into());
        answered(0, mark);
        answered(1, Duration::ZERO);
        assert!(ledger.stable_generation(mark).is_err(), "the second has not been answered since");
        answered(1, mark);
        assert_eq!(ledger.stable_generation(mark), Ok(4));
        ledger.enters(2);
        assert!(ledger.stable_generation(mark).is_err(), "the third is not in it");
        ledger.quits(2);
        ledger.releases(1, "told so");
        ledger.holds(1, "b", 5, &[1].into());
        answered(1, mark);
        assert!(ledger.stable_generation(mark).is_err(), "two generations");
        ledger.quits(1);
        assert!(ledger.stable_generation(mark).is_err(), "nobody holds the second partition");
    }
}
