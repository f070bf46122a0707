//! What an operator does to a cluster under load, with the command `weir`: another order of replicas, other configs, all copies
//! of the topic off a node and back.

use std::collections::BTreeMap;
use std::time::Duration;

use super::TOPIC;
use super::faults::index;
use crate::clients::weir_output;
use crate::clock::wait_until;
use crate::moments::Moments;
use crate::replicated_cluster::ReplicatedCluster;

/// How long a healed cluster may take to accept that copies come back.
const ACCEPT_LIMIT: Duration = Duration::from_secs(60);
/// As many copies stay, whatever is drained: a storm may take one more.
const COPIES_MIN: usize = 2;

/// What `weir` said, in one line: another fault may be the reason that it does not get through.
fn operator(cluster: &ReplicatedCluster, args: &[&str]) -> String {
    let outcome = if succeeds(cluster, args) { "done" } else { "refused" };
    format!("weir {}: {outcome}", args.join(" "))
}

fn succeeds(cluster: &ReplicatedCluster, args: &[&str]) -> bool {
    weir_output(&cluster.bootstrap(), args, b"").status.success()
}

/// The same replicas in another order.
pub(super) fn reassign(cluster: &ReplicatedCluster, told_by: usize, chance: &mut Moments) -> String {
    let seen = cluster.partitions(told_by, TOPIC).unwrap_or_default();
    if seen.is_empty() {
        return "nobody says which partitions there are: nothing is moved".to_owned();
    }
    let partition = index(chance, seen.len());
    let mut replicas: Vec<String> = seen[partition].replicas.iter().map(ToString::to_string).collect();
    let by = 1 + index(chance, replicas.len().max(2) - 1);
    let count = replicas.len().max(1);
    replicas.rotate_left(by % count);
    let at = format!("{TOPIC}:{partition}");
    let moved = operator(cluster, &["partition", "move", &at, "--replicas", &replicas.join(",")]);
    let elected = operator(cluster, &["partition", "elect", &at]);
    format!("{moved}; {elected}")
}

pub(super) fn change_configs(cluster: &ReplicatedCluster, chance: &mut Moments) -> String {
    let min = format!("min.insync.replicas={}", 1 + index(chance, 2));
    let segment = format!("segment.bytes={}", [1 << 20, 4 << 20, 1 << 30][index(chance, 3)]);
    operator(cluster, &["config", "set", &format!("topic:{TOPIC}"), &min, &segment])
}

/// Partitions that have fewer copies than they had, with the replicas that they are to get back.
#[derive(Debug, Default)]
pub(super) struct Drained {
    before: BTreeMap<usize, Vec<usize>>,
}

impl Drained {
    /// Takes every copy of the topic from a node. With as many copies as nodes `weir node drain` finds no place for them, so
    /// each partition goes on with one less.
    pub(super) fn drain(&mut self, cluster: &ReplicatedCluster, node: usize) -> String {
        let Some(seen) = cluster.partitions(node, TOPIC) else {
            return format!("storage-node-{node} does not say what it holds: it keeps it");
        };
        let mut without = BTreeMap::new();
        for (partition, view) in seen.into_iter().enumerate() {
            let rest: Vec<usize> = view.replicas.iter().copied().filter(|id| *id != node).collect();
            if rest.len() < view.replicas.len() && rest.len() >= COPIES_MIN {
                self.before.entry(partition).or_insert(view.replicas);
                without.insert(partition, rest);
            }
        }
        let said: Vec<String> = moves(&without).iter().map(|args| operator(cluster, &words(args))).collect();
        format!("storage-node-{node} is drained: {}", said.join("; "))
    }

    /// Gives the copies back; says what is not accepted though nothing is wrong any more.
    pub(super) fn give_back(&mut self, cluster: &ReplicatedCluster) -> Result<(), String> {
        for args in moves(&std::mem::take(&mut self.before)) {
            let accepted = || succeeds(cluster, &words(&args)).then_some(());
            wait_until(ACCEPT_LIMIT, accepted).ok_or_else(|| {
                format!("`weir {}` is refused for {ACCEPT_LIMIT:?} after healing", args.join(" "))
            })?;
        }
        Ok(())
    }
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// The commands that give partitions their replicas, one for all that get the same.
fn moves(replicas: &BTreeMap<usize, Vec<usize>>) -> Vec<Vec<String>> {
    let list = |ids: &[usize]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mut same: BTreeMap<&[usize], Vec<usize>> = BTreeMap::new();
    for (partition, ids) in replicas {
        same.entry(ids).or_default().push(*partition);
    }
    let command = |(ids, partitions): (&[usize], Vec<usize>)| {
        let of = format!("{TOPIC}:{}", list(&partitions));
        ["partition", "move", &of, "--replicas", &list(ids)].map(str::to_owned).to_vec()
    };
    same.into_iter().map(command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_that_get_the_same_replicas_move_together() {
        let replicas = [(0, vec![1, 2]), (1, vec![2, 1]), (4, vec![1, 2])].into();
        let lines: Vec<String> = moves(&replicas).iter().map(|args| args.join(" ")).collect();
        let expected = ["partition move chaos:0,4 --replicas 1,2", "partition move chaos:1 --replicas 2,1"];
        assert_eq!(lines, expected);
    }
}
