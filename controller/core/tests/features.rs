//! The level of `weir.version`: who may join at which, and what raises it.

mod cluster;

use cluster::{Cluster, refused, registration};
use controller_core::{Chance, ClusterState, CoordinatorSessions, plan};
use proto_types::controller_api::*;
use proto_types::error::{Reason, Rejection};
use proto_types::feature::{FeatureLevel, LevelRange, WEIR_VERSION};
use proto_types::ids::*;
use proto_types::metadata::*;
use uuid::Uuid;

fn range(min: i16, max: i16) -> LevelRange {
    LevelRange { min: FeatureLevel(min), max: FeatureLevel(max) }
}

/// A cluster whose one controller leads and supports `levels`.
fn cluster(levels: LevelRange) -> Cluster {
    let mut cluster = Cluster::new(1);
    cluster.inputs.levels = levels;
    found(&mut cluster, &[1]);
    cluster
}

/// Its leader writes down the voters, and with the first ones the level.
fn found(cluster: &mut Cluster, voters: &[u64]) {
    let mut changes: Vec<MetadataChange> = plan::found(&cluster.state, &cluster.inputs).into_iter().collect();
    let voters = voters.iter().map(|id| (ControllerId(*id), (format!("h:{id}"), None))).collect();
    changes.extend(cluster.state.controllers().become_voters(voters));
    cluster.commit(plan::Decision { changes, reply: () });
}

fn join(cluster: &mut Cluster, node: i32, incarnation: u128, levels: LevelRange) -> Result<(), Rejection> {
    let request = registration(node, incarnation);
    let decision = plan::register_node(&cluster.state, &request, levels, &cluster.inputs)?;
    cluster.commit(decision);
    Ok(())
}

fn coordinator(id: i32, incarnation: u128) -> RegisterCoordinator {
    RegisterCoordinator {
        cluster_id: "c".into(),
        coordinator: CoordinatorId(id),
        incarnation: Incarnation(Uuid::from_u128(incarnation)),
        control_address: "h:3".into(),
    }
}

fn join_coordinator(
    cluster: &mut Cluster,
    id: i32,
    levels: LevelRange,
) -> Result<RegistrationEpoch, Rejection> {
    let request = coordinator(id, 1);
    let decision = plan::register_coordinator(&cluster.state, &request, levels, &cluster.inputs)?;
    Ok(cluster.commit(decision))
}

fn update(feature: &str, level: i16, direction: UpgradeType) -> FeatureUpdate {
    FeatureUpdate { feature: feature.into(), level: FeatureLevel(level), direction }
}

fn raise(level: i16) -> Vec<FeatureUpdate> {
    vec![update(WEIR_VERSION, level, UpgradeType::Upgrade)]
}

fn ask(
    cluster: &mut Cluster,
    updates: Vec<FeatureUpdate>,
    quorum: &[(u64, LevelRange)],
) -> Result<(), Rejection> {
    let quorum: Vec<_> = quorum.iter().map(|(id, levels)| (ControllerId(*id), *levels)).collect();
    let request = UpdateFeatures { updates, validate_only: false, timeout_ms: 0 };
    let decision = plan::update_features(&cluster.state, &request, &quorum, &cluster.inputs)?;
    cluster.commit(decision);
    Ok(())
}

fn level(cluster: &Cluster) -> i16 {
    cluster.state.features().level().0
}

#[test]
fn a_new_cluster_says_its_level_and_one_that_says_none_is_at_the_first() {
    let new = cluster(range(1, 3));
    assert_eq!((level(&new), new.state.features().epoch()), (3, FeatureEpoch(1)));
    assert_eq!(plan::found(&new.state, &new.inputs), None, "it has begun");

    // The first level goes without saying, so that a build without levels can read the log.
    let first = cluster(LevelRange::IMPLIED);
    assert_eq!((level(&first), first.state.features().epoch()), (1, FeatureEpoch(0)));
    let mut joined = Cluster::new(1);
    join(&mut joined, 1, 1, range(1, 2)).expect("it supports level 1");
    assert_eq!((level(&joined), joined.state.features().epoch()), (1, FeatureEpoch(0)));

    // A log of a build without levels: its voters are written down, and nothing else.
    let mut old = Cluster::new(1);
    old.inputs.levels = range(1, 3);
    let voters = [(ControllerId(1), ("h:1".to_owned(), None))].into();
    let changes = old.state.controllers().become_voters(voters).into_iter().collect();
    old.commit(plan::Decision { changes, reply: () });
    assert_eq!(plan::found(&old.state, &old.inputs), None);
    assert_eq!((level(&old), old.state.features().epoch()), (1, FeatureEpoch(0)));
    join(&mut old, 1, 1, range(1, 2)).expect("it supports level 1");
    assert_eq!(level(&old), 1);
    assert_eq!(refused(join(&mut old, 2, 1, range(2, 3))).0, Reason::UnsupportedLevel);
}

#[test]
fn whoever_registers_first_founds_the_cluster() {
    let mut cluster = Cluster::new(1);
    cluster.inputs.levels = range(2, 3);
    assert_eq!(refused(join(&mut cluster, 1, 1, range(1, 2))).0, Reason::UnsupportedLevel);
    join(&mut cluster, 1, 1, range(2, 3)).expect("it supports the level at which the cluster begins");
    assert_eq!(level(&cluster), 3);
    found(&mut cluster, &[1]);
    assert_eq!(cluster.state.features().epoch(), FeatureEpoch(1), "said once");
}

#[test]
fn a_daemon_that_does_not_support_the_level_is_refused_and_told_what_to_do() {
    let mut cluster = cluster(range(1, 2));
    let (reason, message) = refused(join(&mut cluster, 1, 1, LevelRange::IMPLIED));
    assert_eq!(reason, Reason::UnsupportedLevel);
    let expected = "The cluster is at level 2 of weir.version, and node 1 supports level 1 only. Run a newer build \
                    there, one that supports level 2.";
    assert_eq!(message, expected);
    let (_, message) = refused(join(&mut cluster, 1, 1, range(3, 4)));
    assert!(message.contains("supports levels 3 to 4. Run an older build there"), "{message}");
    assert!(message.contains("`weir feature upgrade weir.version=3`"), "{message}");
    let (reason, message) = refused(join_coordinator(&mut cluster, 7, LevelRange::IMPLIED));
    assert_eq!(reason, Reason::UnsupportedLevel);
    assert!(message.contains("coordinator 7 supports level 1 only"), "{message}");

    join(&mut cluster, 1, 1, range(1, 2)).expect("N−1 and N");
    join(&mut cluster, 2, 1, range(2, 3)).expect("N and N+1");
    join_coordinator(&mut cluster, 7, range(2, 2)).expect("N");
    assert_eq!(cluster.state.nodes().get(NodeId(2)).expect("registered").levels, range(2, 3));

    // A new incarnation is a new build: it goes by what it says now.
    assert_eq!(refused(join(&mut cluster, 2, 2, LevelRange::IMPLIED)).0, Reason::UnsupportedLevel);
    assert_eq!(cluster.state.nodes().get(NodeId(2)).expect("still").levels, range(2, 3));
}

#[test]
fn an_older_incarnation_takes_back_what_the_newer_one_supported() {
    let mut cluster = cluster(LevelRange::IMPLIED);
    join(&mut cluster, 1, 1, range(1, 2)).expect("supports level 1");
    join(&mut cluster, 1, 2, LevelRange::IMPLIED).expect("supports level 1");
    assert_eq!(cluster.state.nodes().get(NodeId(1)).expect("registered").levels, LevelRange::IMPLIED);
}

#[test]
fn the_level_is_raised_when_everybody_supports_it() {
    let mut cluster = cluster(LevelRange::IMPLIED);
    cluster.inputs.levels = range(1, 2);
    found(&mut cluster, &[1, 2]);
    join(&mut cluster, 1, 1, range(1, 2)).expect("joins");
    join(&mut cluster, 2, 1, LevelRange::IMPLIED).expect("joins");
    let epoch = join_coordinator(&mut cluster, 4, LevelRange::IMPLIED).expect("joins");
    let both = [(1, range(1, 2)), (2, range(1, 2))];
    let says = |cluster: &mut Cluster, quorum: &[(u64, LevelRange)]| {
        let (reason, message) = refused(ask(cluster, raise(2), quorum));
        assert_eq!((reason, level(cluster)), (Reason::InvalidFeatureLevel, 1));
        message
    };
    assert!(says(&mut cluster, &both[..1]).starts_with("Controller 2 has not said"));
    let old = [both[0], (2, LevelRange::IMPLIED)];
    assert!(says(&mut cluster, &old).starts_with("Controller 2 supports level 1 only"));
    let message = says(&mut cluster, &both);
    assert!(message.starts_with("Node 2 supports level 1 only of weir.version, not level 2."), "{message}");
    assert!(message.contains("`weir node remove 2`"), "{message}");

    // Whether it is up does not matter: it may come back.
    let decision = plan::fence_node(&cluster.state, NodeId(2), cluster.epoch(2)).expect("known");
    cluster.commit(decision);
    assert!(says(&mut cluster, &both).starts_with("Node 2"));
    join(&mut cluster, 2, 2, range(1, 2)).expect("with a newer build");
    assert!(says(&mut cluster, &both).starts_with("Coordinator 4"));

    // A coordinator that is gone holds nobody up, and does not come back unseen.
    let decision = plan::fence_coordinator(&cluster.state, CoordinatorId(4), epoch).expect("known");
    cluster.commit(decision);
    let before = cluster.state.features().epoch();
    ask(&mut cluster, raise(2), &both).expect("all that count support it");
    assert_eq!(level(&cluster), 2);
    assert!(cluster.state.features().epoch() > before);
    let back = plan::unfence_coordinator(&cluster.state, CoordinatorId(4), epoch);
    assert_eq!(refused(back).0, Reason::UnsupportedLevel);
    let mut sessions = CoordinatorSessions::new(1000);
    sessions.begin_leadership(Millis(0), &cluster.state);
    let mut heartbeat = CoordinatorHeartbeat {
        coordinator: CoordinatorId(4),
        epoch,
        applied: cluster.state.applied(),
        stopping: false,
    };
    let told = refused(sessions.beat(Millis(1), &heartbeat, &cluster.state));
    assert_eq!(told.0, Reason::UnsupportedLevel, "it is told, too");
    heartbeat.stopping = true;
    assert!(sessions.beat(Millis(2), &heartbeat, &cluster.state).expect("it may go").may_stop);
}

#[test]
fn what_cannot_be_is_refused_as_a_whole() {
    let mut cluster = cluster(range(2, 3));
    cluster.inputs.levels = range(1, 4);
    join(&mut cluster, 1, 1, range(1, 4)).expect("joins");
    let quorum = [(1, range(1, 4))];
    let cases: Vec<(Vec<FeatureUpdate>, &str)> = vec![
        (
            vec![update("metadata.version", 20, UpgradeType::Upgrade)],
            "There is no feature \"metadata.version\"",
        ),
        (vec![update(WEIR_VERSION, 0, UpgradeType::UnsafeDowngrade)], "cannot be at level 0"),
        (raise(-1), "cannot be at level -1"),
        (raise(5), "The controller that leads supports levels 1 to 4"),
        (raise(2), "an upgrade does not lower it to 2"),
        (vec![update(WEIR_VERSION, 2, UpgradeType::SafeDowngrade)], "stays there"),
        (vec![update(WEIR_VERSION, 2, UpgradeType::UnsafeDowngrade)], "stays there"),
        (vec![update(WEIR_VERSION, 4, UpgradeType::SafeDowngrade)], "not a downgrade"),
        ([raise(4), vec![update("x", 1, UpgradeType::Upgrade)]].concat(), "There is no feature \"x\""),
        ([vec![update("x", 1, UpgradeType::Upgrade)], raise(4)].concat(), "There is no feature \"x\""),
        ([raise(4), raise(9)].concat(), "not level 9"),
        ([vec![update("x", 1, UpgradeType::Upgrade)], raise(9)].concat(), "There is no feature \"x\""),
    ];
    for (updates, text) in cases {
        let (reason, message) = refused(ask(&mut cluster, updates.clone(), &quorum));
        assert_eq!(reason, Reason::InvalidFeatureLevel, "{updates:?}");
        assert!(message.contains(text) && message.ends_with("Nothing was changed."), "{message}");
        assert_eq!(level(&cluster), 3);
    }
    let many = vec![update(WEIR_VERSION, 4, UpgradeType::Upgrade); 100_000];
    assert_eq!(refused(ask(&mut cluster, many, &quorum)).0, Reason::PolicyViolation);

    let validated = UpdateFeatures { updates: raise(4), validate_only: true, timeout_ms: 0 };
    let answers = [(ControllerId(1), range(1, 4))];
    let decision =
        plan::update_features(&cluster.state, &validated, &answers, &cluster.inputs).expect("it may be");
    assert_eq!(decision.changes, []);

    // The same level again is no change, whichever way it is asked for; of two updates the last one counts.
    ask(&mut cluster, vec![update(WEIR_VERSION, 3, UpgradeType::SafeDowngrade)], &quorum).expect("as it is");
    ask(&mut cluster, vec![], &quorum).expect("nothing");
    assert_eq!((level(&cluster), cluster.state.features().epoch()), (3, FeatureEpoch(1)));
    ask(&mut cluster, [raise(9), raise(4)].concat(), &quorum).expect("the last one counts");
    assert_eq!(level(&cluster), 4);
}

/// Random joins, builds and raises: the level only grows, whoever is counted on supports it, and it grows exactly when all
/// support the next one.
#[test]
fn random_upgrades() {
    let mut raised = 0;
    for seed in 0..400 {
        let mut chance = Chance::new(seed);
        let any = |chance: &mut Chance| {
            let min = 1 + chance.below(3) as i16;
            range(min, min + chance.below(3) as i16)
        };
        let mut cluster = cluster(range(1, 1 + chance.below(2) as i16));
        for step in 0..40 {
            let (before, epoch) = (level(&cluster), cluster.state.features().epoch());
            let own = any(&mut chance);
            if own.contains(FeatureLevel(before)) {
                cluster.inputs.levels = own;
            }
            let id = 1 + chance.below(3) as i32;
            let levels = any(&mut chance);
            match chance.below(4) {
                0 => {
                    let joined = join(&mut cluster, id, step, levels);
                    assert_eq!(joined.is_ok(), levels.contains(FeatureLevel(before)));
                }
                1 => {
                    let joined = join_coordinator(&mut cluster, id, levels);
                    assert_eq!(joined.is_ok(), levels.contains(FeatureLevel(before)));
                }
                2 => {
                    let known = cluster.state.coordinators().get(CoordinatorId(id));
                    if let Some(epoch) = known.map(|known| known.registration.epoch) {
                        let state = &cluster.state;
                        let fenced = plan::fence_coordinator(state, CoordinatorId(id), epoch).expect("known");
                        cluster.commit(fenced);
                    }
                }
                _ => {
                    let wanted = chance.below(6) as i16;
                    let voter = any(&mut chance);
                    let may = wanted >= before && all_support(&cluster, voter, FeatureLevel(wanted));
                    let done = ask(&mut cluster, raise(wanted), &[(1, voter)]);
                    assert_eq!(done.is_ok(), may, "{done:?}");
                    assert_eq!(level(&cluster), if may { wanted } else { before });
                    raised += u32::from(may && wanted > before);
                }
            }
            assert!(level(&cluster) >= before);
            let now = cluster.state.features().epoch();
            assert!(if level(&cluster) > before { now > epoch } else { now == epoch });
            let restored = ClusterState::from_changes(cluster.state.applied(), &cluster.state.to_changes());
            assert_eq!(restored, cluster.state);
        }
    }
    assert!(raised > 100, "raised {raised} times only");
}

fn all_support(cluster: &Cluster, voter: LevelRange, wanted: FeatureLevel) -> bool {
    let state = &cluster.state;
    wanted.0 >= 1
        && voter.contains(wanted)
        && cluster.inputs.levels.contains(wanted)
        && state.nodes().iter().all(|(_, node)| node.levels.contains(wanted))
        && state.coordinators().iter().all(|(_, one)| one.fenced || one.levels.contains(wanted))
}
