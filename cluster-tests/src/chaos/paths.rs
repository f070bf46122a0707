//! Faults of the packets to one storage node or from it: late, overtaken, twice, damaged.

use std::time::Duration;

use super::faults::index;
use crate::moments::Moments;
use crate::netns::{Disturbance, NetworkError, Way};
use crate::replicated_cluster::ReplicatedCluster;

/// The delay is at least this,
const DELAY_MIN: Duration = Duration::from_millis(10);
/// and with its jitter, which is up to a fourth of it, less than half a second.
const DELAY_SPREAD: Duration = Duration::from_millis(390);
/// So many of ten thousand packets are overtaken, or come twice.
const SOME: [u16; 4] = [100, 500, 1_000, 2_000];
/// So many of ten thousand are damaged.
const FEW: [u16; 2] = [10, 100];
/// So long one waits to be overtaken.
const HELD_FOR: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(20), Duration::from_millis(100)];

pub(super) fn delay(
    cluster: &mut ReplicatedCluster,
    node: usize,
    chance: &mut Moments,
) -> Result<String, NetworkError> {
    let delay = DELAY_MIN + chance.within(DELAY_SPREAD);
    let jitter = chance.within(delay / 4);
    let path = disturb(cluster, node, Disturbance { delay, jitter, ..Disturbance::default() }, chance)?;
    Ok(format!("packets {path} come {} ms late, or up to {} ms more", delay.as_millis(), jitter.as_millis()))
}

pub(super) fn reorder(
    cluster: &mut ReplicatedCluster,
    node: usize,
    chance: &mut Moments,
) -> Result<String, NetworkError> {
    let held_back = SOME[index(chance, SOME.len())];
    let held_for = HELD_FOR[index(chance, HELD_FOR.len())];
    let path = disturb(cluster, node, Disturbance { held_back, held_for, ..Disturbance::default() }, chance)?;
    let percent = held_back / 100;
    Ok(format!("{percent} of 100 packets {path} are held back for up to {} ms", held_for.as_millis()))
}

pub(super) fn duplicate(
    cluster: &mut ReplicatedCluster,
    node: usize,
    chance: &mut Moments,
) -> Result<String, NetworkError> {
    let doubled = SOME[index(chance, SOME.len())];
    let path = disturb(cluster, node, Disturbance { doubled, ..Disturbance::default() }, chance)?;
    Ok(format!("{} of 100 packets {path} come twice", doubled / 100))
}

pub(super) fn corrupt(
    cluster: &mut ReplicatedCluster,
    node: usize,
    chance: &mut Moments,
) -> Result<String, NetworkError> {
    let damaged = FEW[index(chance, FEW.len())];
    let path = disturb(cluster, node, Disturbance { damaged, ..Disturbance::default() }, chance)?;
    Ok(format!("{damaged} of 10,000 packets {path} are damaged"))
}

/// Says which path it is.
fn disturb(
    cluster: &mut ReplicatedCluster,
    node: usize,
    disturbance: Disturbance,
    chance: &mut Moments,
) -> Result<String, NetworkError> {
    let way = if chance.next_number().is_multiple_of(2) { Way::To } else { Way::From };
    let host = cluster.node(node).host.clone();
    cluster.network().disturb(&host, way, disturbance, chance.next_number())?;
    Ok(format!("{way} storage-node-{node}"))
}
