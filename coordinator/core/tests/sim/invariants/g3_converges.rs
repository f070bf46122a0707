//! G3: without faults, every group with members becomes stable, every partition has exactly one owner, nobody waits.

use std::collections::BTreeMap;

use coordinator_core::{GroupState, Shard};
use kafka_wire_core::Str;

use crate::client::{Client, PARTITIONS, Phase};

/// `commits_at_heal` are the clients' commits when the faults ended.
pub(crate) fn check(clients: &[Client], shard: Option<&Shard>, commits_at_heal: &[u64]) {
    let shard = shard.unwrap_or_else(|| panic!("G3: nobody serves the shard"));
    let mut owners: BTreeMap<(&Str, i32), Vec<&Str>> = BTreeMap::new();
    let mut members: BTreeMap<&Str, usize> = BTreeMap::new();
    for (client, before) in clients.iter().zip(commits_at_heal) {
        if client.phase == Phase::Out {
            continue;
        }
        assert_eq!(client.phase, Phase::Stable, "G3: {} is stuck: {client:?}", client.name);
        assert!(
            client.commits > *before || client.owned.is_empty(),
            "G3: {} makes no progress: {client:?}",
            client.name
        );
        *members.entry(&client.group).or_default() += 1;
        for partition in &client.owned {
            owners.entry((&client.group, *partition)).or_default().push(&client.name);
        }
    }
    for (group, count) in members {
        let overview = shard.group_overview(group).map(|(state, _, members)| (state, members));
        assert_eq!(overview, Some((GroupState::Stable, count)), "G3: {group} is not stable");
        for partition in 0..PARTITIONS {
            let owners = owners.get(&(group, partition)).map(Vec::as_slice).unwrap_or_default();
            assert_eq!(owners.len(), 1, "G3: {group} partition {partition} is owned by {owners:?}");
        }
    }
}
