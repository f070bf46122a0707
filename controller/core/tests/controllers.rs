//! The list of controllers: who votes, who did once.

use controller_core::ClusterState;
use proto_types::ids::{ControllerId, DirectoryId, MetadataIndex};
use std::collections::BTreeMap;
use uuid::Uuid;

type Voters = BTreeMap<ControllerId, (String, Option<DirectoryId>)>;

fn voters(ids: &[u64]) -> Voters {
    ids.iter().map(|id| (ControllerId(*id), (format!("c{id}:9183"), None))).collect()
}

fn become_voters(state: &mut ClusterState, index: u64, ids: &[u64]) {
    let change = state.controllers().become_voters(voters(ids)).expect("a change");
    state.apply_batch(MetadataIndex(index), &[change]);
}

#[test]
fn whoever_had_a_vote_is_remembered_for_ever() {
    let mut state = ClusterState::new();
    become_voters(&mut state, 1, &[1, 2, 3]);
    assert_eq!(state.controllers().removed(), []);
    assert_eq!(state.controllers().become_voters(voters(&[1, 2, 3])), None, "nothing changes");
    become_voters(&mut state, 2, &[1, 2, 4]);
    become_voters(&mut state, 3, &[2, 4, 5]);
    assert_eq!(state.controllers().removed(), [ControllerId(1), ControllerId(3)]);
    let ids: Vec<u64> = state.controllers().voters().iter().map(|voter| voter.id.0).collect();
    assert_eq!(ids, [2, 4, 5]);
    let restored = ClusterState::from_changes(state.applied(), &state.to_changes());
    assert_eq!(restored, state);
}

#[test]
fn a_directory_is_known_for_good() {
    let mut state = ClusterState::new();
    become_voters(&mut state, 1, &[1, 2]);
    assert_eq!(state.controllers().directory(ControllerId(2)), None);
    let seen = |directory| {
        let mut voters = voters(&[1, 2]);
        voters.insert(ControllerId(2), ("c2:9183".into(), Some(DirectoryId(Uuid::from_u128(directory)))));
        voters
    };
    let change = state.controllers().become_voters(seen(7)).expect("a change");
    state.apply_batch(MetadataIndex(2), &[change]);
    assert_eq!(state.controllers().become_voters(seen(8)), None, "the first one counts");
    assert_eq!(state.controllers().become_voters(voters(&[1, 2])), None);
    assert_eq!(state.controllers().directory(ControllerId(2)), Some(DirectoryId(Uuid::from_u128(7))));
}
