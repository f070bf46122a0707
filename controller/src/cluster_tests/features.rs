//! Builds that support different feature levels in one quorum, and what a rolling upgrade may and may not do.

use super::*;
use controller_core::ClusterState;
use proto_types::feature::{FeatureLevel, LevelRange, WEIR_VERSION};

const OLD: LevelRange = LevelRange::IMPLIED;
const NEW: LevelRange = LevelRange { min: FeatureLevel(1), max: FeatureLevel(2) };

fn old_build(config: &mut Config) {
    plain(config);
    config.timing.confirm_ms = 3_000;
    config.levels = OLD;
}

fn new_build(config: &mut Config) {
    plain(config);
    config.timing.confirm_ms = 3_000;
    config.levels = NEW;
}

fn raise() -> ControllerRequest {
    let (feature, level) = (WEIR_VERSION.to_owned(), FeatureLevel(2));
    let update = FeatureUpdate { feature, level, direction: UpgradeType::Upgrade };
    let updates = vec![update];
    ControllerRequest::UpdateFeatures(UpdateFeatures { updates, validate_only: false, timeout_ms: 0 })
}

fn refusal(answer: Result<ControllerReply, ControllerError>) -> (Reason, String) {
    match answer {
        Err(ControllerError::Rejected(rejection)) => (rejection.reason, rejection.message),
        other => panic!("{other:?}"),
    }
}

fn node(incarnation: u128, levels: LevelRange) -> ControllerRequest {
    let ControllerRequest::RegisterNode(registration) = registration(incarnation) else {
        panic!("it registers")
    };
    ControllerRequest::register_node(registration, levels)
}

fn level(state: &Arc<ClusterState>) -> i16 {
    state.features().level().0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_cluster_takes_who_supports_its_level_and_refuses_others() {
    let mut quorum = Quorum::start(1, new_build).await;
    let (reason, message) = refusal(quorum.ask_leader(&node(1, OLD)).await);
    assert_eq!(reason, Reason::UnsupportedLevel);
    assert!(message.contains("is at level 2 of weir.version, and node 1 supports level 1 only"), "{message}");
    for (incarnation, min) in [(2, 1), (3, 2)] {
        let levels = LevelRange { min: FeatureLevel(min), max: FeatureLevel(min + 1) };
        let taken = quorum.ask_leader(&node(incarnation, levels)).await;
        assert!(matches!(taken, Ok(ControllerReply::Registered { .. })), "{taken:?}");
    }
    quorum.stop(1).await;
    quorum.start_one(1).await;
    let handle = quorum.all().next().expect("running");
    assert!(handle.ready(PATIENCE).await);
    let state = handle.state();
    assert_eq!(level(&state), 2, "it is in the log");
    assert_eq!(state.nodes().get(NodeId(1)).expect("registered").levels.min, FeatureLevel(2));
    quorum.stop(1).await;
}

/// Its log begins at the first level all the same, and says the others later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_supports_the_first_level_no_more_founds_a_cluster_and_goes_on_in_its_log() {
    let mut quorum = Quorum::start(1, |config| {
        plain(config);
        config.levels = LevelRange { min: FeatureLevel(2), max: FeatureLevel(3) };
    })
    .await;
    let levels = LevelRange { min: FeatureLevel(3), max: FeatureLevel(4) };
    let taken = quorum.ask_leader(&node(1, levels)).await;
    assert!(matches!(taken, Ok(ControllerReply::Registered { .. })), "{taken:?}");
    quorum.adjust = |config| {
        plain(config);
        config.levels = LevelRange { min: FeatureLevel(3), max: FeatureLevel(4) };
    };
    quorum.stop(1).await;
    quorum.start_one(1).await;
    let handle = quorum.all().next().expect("running");
    assert!(handle.ready(PATIENCE).await);
    assert_eq!(level(&handle.state()), 3);
    quorum.stop(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_upgrade_ends_with_a_new_level_and_an_old_build_does_not_come_back() {
    let mut quorum = Quorum::start(3, old_build).await;
    let old_node = quorum.ask_leader(&node(1, OLD)).await;
    assert!(matches!(old_node, Ok(ControllerReply::Registered { .. })), "{old_node:?}");

    // Controllers first. The last one is still old, and then does not answer.
    quorum.adjust = new_build;
    for id in [1, 2] {
        quorum.stop(id).await;
        quorum.start_one(id).await;
    }
    let message = loop {
        let (reason, message) = refusal(quorum.ask_leader(&raise()).await);
        assert_eq!(reason, Reason::InvalidFeatureLevel);
        if !message.starts_with("The controller that leads supports level 1 only") {
            break message;
        }
        // The old one leads, and cannot tell more. Another one is to lead.
        quorum.kill(3).await;
        quorum.adjust = old_build;
        quorum.start_one(3).await;
        quorum.adjust = new_build;
    };
    assert!(message.starts_with("Controller 3 "), "{message}");
    quorum.kill(3).await;
    let (_, message) = refusal(quorum.ask_leader(&raise()).await);
    assert!(message.starts_with("Controller 3 has not said whether it supports level 2"), "{message}");
    quorum.start_one(3).await;

    // Now the node is what holds it up.
    let message = eventually_refused(&quorum, "Node 1").await;
    assert!(message.contains("supports level 1 only of weir.version, not level 2"), "{message}");
    let new_node = quorum.ask_leader(&node(2, NEW)).await;
    assert!(matches!(new_node, Ok(ControllerReply::Registered { .. })), "{new_node:?}");
    let raised = quorum.ask_leader(&raise()).await;
    assert_eq!(raised, Ok(ControllerReply::FeaturesUpdated));
    eventually("all are at level 2", || quorum.all().all(|one| level(&one.state()) == 2).then_some(())).await;

    an_old_build_stops_by_itself(&mut quorum, 3).await;

    // Nor does one get a vote.
    quorum.adjust = old_build;
    quorum.dirs.push(tempfile::tempdir().expect("temp dir"));
    quorum.running.push(None);
    quorum.start_one(4).await;
    let (id, address) = (ControllerId(4), address(4).to_string());
    let request = ControllerRequest::AlterVoters(AlterVoters::Add { id, address });
    let (reason, message) = refusal(quorum.ask_leader(&request).await);
    assert_eq!(reason, Reason::UnsupportedLevel);
    assert!(message.contains("controller 4 supports level 1 only. Run a newer build there"), "{message}");
    for id in [4, 3, 2, 1] {
        quorum.stop(id).await;
    }
}

/// It finds the level in its log, or is sent it. A new build goes on from there.
async fn an_old_build_stops_by_itself(quorum: &mut Quorum, id: u64) {
    quorum.adjust = old_build;
    quorum.kill(id).await;
    let why = match quorum.try_start(id).await {
        Err(error) => error.to_string(),
        Ok(handle) => {
            let why = tokio::time::timeout(PATIENCE, handle.failed()).await.expect("it gives up");
            handle.shutdown().await;
            why
        }
    };
    assert!(
        why.contains("is at level 2 of weir.version, and this controller supports level 1 only"),
        "{why}"
    );
    quorum.adjust = new_build;
    quorum.start_one(id).await;
    eventually("the new build is back", || {
        let state = quorum.running[id as usize - 1].as_ref().expect("started").state();
        (level(&state) == 2).then_some(())
    })
    .await;
}

/// Until the refusal is that of `who`: a controller that was just started may not answer yet.
async fn eventually_refused(quorum: &Quorum, who: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (_, message) = refusal(quorum.ask_leader(&raise()).await);
        if message.starts_with(who) {
            return message;
        }
        assert!(message.starts_with("Controller 3 ") && Instant::now() < deadline, "{message}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
