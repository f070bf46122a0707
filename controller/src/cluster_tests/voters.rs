//! Voters that come and go while the quorum works, and controllers that must not come back.

use super::*;

async fn alter(quorum: &Quorum, change: AlterVoters) -> Result<ControllerReply, ControllerError> {
    quorum.ask_leader(&ControllerRequest::AlterVoters(change)).await
}

fn add(id: u64) -> AlterVoters {
    AlterVoters::Add { id: ControllerId(id), address: address(id).to_string() }
}

fn remove(id: u64) -> AlterVoters {
    AlterVoters::Remove { id: ControllerId(id) }
}

fn refusal(answer: Result<ControllerReply, ControllerError>) -> (Reason, String) {
    match answer {
        Err(ControllerError::Rejected(rejection)) => (rejection.reason, rejection.message),
        other => panic!("{other:?}"),
    }
}

async fn describe(quorum: &Quorum) -> QuorumDescription {
    match quorum.ask_leader(&ControllerRequest::DescribeQuorum).await.expect("described") {
        ControllerReply::Quorum(description) => description,
        other => panic!("{other:?}"),
    }
}

fn ids(members: &[VoterProgress]) -> Vec<u64> {
    members.iter().map(|member| member.id.0).collect()
}

/// Removes a voter. A request whose outcome was open is sent again, and finds it done.
async fn removed(quorum: &Quorum, id: u64) {
    match alter(quorum, remove(id)).await {
        Ok(reply) => assert_eq!(reply, ControllerReply::VotersAltered),
        again => assert_eq!(refusal(again).0, Reason::VoterNotFound),
    }
}

impl Quorum {
    /// Starts one more controller, on an empty directory.
    async fn join(&mut self) -> u64 {
        self.dirs.push(tempfile::tempdir().expect("temp dir"));
        self.running.push(None);
        let id = self.dirs.len() as u64;
        self.start_one(id).await;
        id
    }

    /// Waits until the metadata lists exactly these voters, at all that run.
    async fn all_list(&self, voters: &[u64]) {
        eventually("all know the voters", || {
            let lists = self.all().map(|one| one.state());
            let same = |state: Arc<controller_core::ClusterState>| {
                state.controllers().voters().iter().map(|voter| voter.id.0).eq(voters.iter().copied())
            };
            {
                let mut lists = lists;
                lists.all(same).then_some(())
            }
        })
        .await;
    }
}

/// T-46: how a controller is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_controller_is_replaced_by_a_new_one_with_a_new_id() {
    let mut quorum = Quorum::start(3, |config| {
        plain(config);
        config.raft.snapshot_entries = 20;
        config.raft.keep_entries = 5;
    })
    .await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    for n in 0..40 {
        created(quorum.create(&format!("t{n}")).await);
    }
    quorum.all_list(&[1, 2, 3]).await;
    // The leader itself dies for good.
    let dead = quorum.leader().await;
    quorum.kill(dead).await;
    removed(&quorum, dead).await;
    let new = quorum.join().await;
    assert_eq!(alter(&quorum, add(new)).await, Ok(ControllerReply::VotersAltered));
    assert_eq!(alter(&quorum, add(new)).await, Ok(ControllerReply::VotersAltered), "asking again is fine");
    let expected: Vec<u64> = (1..=4).filter(|id| *id != dead).collect();
    quorum.all_list(&expected).await;
    created(quorum.create("with-the-new-one").await);
    quorum.all_have_topic("with-the-new-one").await;
    quorum.all_have_topic("t0").await;
    let described = describe(&quorum).await;
    assert_eq!(ids(&described.voters), expected);
    assert!(described.learners.is_empty());

    // The id of the dead one is gone for ever.
    let (reason, sentence) = refusal(alter(&quorum, add(dead)).await);
    assert_eq!(reason, Reason::DuplicateVoter);
    assert!(sentence.contains("never used again"), "{sentence}");
    // And when it does come back with all that it knew, it is told so and has no say.
    quorum.start_one(dead).await;
    let handle = quorum.running[dead as usize - 1].take().expect("running");
    let told = tokio::time::timeout(PATIENCE, handle.failed()).await.expect("it is told");
    assert!(told.contains("was removed from the quorum"), "{told}");
    handle.shutdown().await;

    // The new one counts: with it the quorum survives the loss of another, and everything is there.
    let leader = quorum.leader().await;
    quorum.kill(leader).await;
    created(quorum.create("after").await);
    quorum.all_have_topic("after").await;
    quorum.all_have_topic("t39").await;
}

/// T-58: the active controller is removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_controller_grows_to_three_and_the_first_one_leaves() {
    let mut quorum = Quorum::start(1, plain).await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    created(quorum.create("before").await);
    for _ in 0..2 {
        let new = quorum.join().await;
        assert_eq!(alter(&quorum, add(new)).await, Ok(ControllerReply::VotersAltered));
    }
    quorum.all_list(&[1, 2, 3]).await;
    quorum.all_have_topic("before").await;
    // It leads, unless it stood still for long. A leader that is to leave hands over first; whoever asks is sent to the next
    // one.
    removed(&quorum, 1).await;
    let handle = quorum.running[0].take().expect("running");
    let told = tokio::time::timeout(PATIENCE, handle.failed()).await.expect("it is told");
    assert!(told.contains("was removed from the quorum"), "{told}");
    handle.shutdown().await;
    quorum.all_list(&[2, 3]).await;
    created(quorum.create("after").await);
    let (reason, sentence) = refusal(alter(&quorum, remove(1)).await);
    assert_eq!(reason, Reason::VoterNotFound, "{sentence}");
    assert!(sentence.contains("it was removed"), "{sentence}");
    // All that is known survives a restart of all, also of those that never formed a quorum.
    for id in [2, 3] {
        quorum.stop(id).await;
    }
    for id in [2, 3] {
        quorum.start_one(id).await;
    }
    quorum.all_list(&[2, 3]).await;
    quorum.all_have_topic("before").await;
    quorum.all_have_topic("after").await;
    created(quorum.create("still").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_break_the_quorum_is_refused() {
    let mut quorum = Quorum::start(3, plain).await;
    let leader = quorum.leader().await;
    let [one, other] = [1, 2, 3].into_iter().filter(|id| *id != leader).collect::<Vec<_>>()[..] else {
        panic!("three")
    };
    quorum.all_list(&[1, 2, 3]).await;
    let elsewhere = AlterVoters::Add { id: ControllerId(one), address: "10.9.9.9:1".into() };
    let (reason, sentence) = refusal(alter(&quorum, elsewhere).await);
    assert_eq!(reason, Reason::DuplicateVoter, "{sentence}");
    let nowhere = AlterVoters::Add { id: ControllerId(7), address: "nowhere".into() };
    assert_eq!(refusal(alter(&quorum, nowhere).await).0, Reason::InvalidRequest);
    assert_eq!(refusal(alter(&quorum, remove(9)).await).0, Reason::VoterNotFound);

    // With one voter away, the other two are all that can decide.
    quorum.kill(one).await;
    eventually_refused(&quorum, other).await;
    // A new one gets no vote while a voter does not know it.
    let new = quorum.join().await;
    let request = ControllerRequest::AlterVoters(add(new));
    let deadline = Instant::now() + PATIENCE;
    let answer: Result<ControllerReply, ControllerError> = loop {
        assert!(Instant::now() < deadline, "nobody leads for long enough");
        let leader = quorum.leader().await;
        let peer = quorum.peer(leader);
        let answer = peer.ask(MessageKind::Controller, &request, Duration::from_secs(5)).await;
        match answer.expect("the call itself works") {
            // It may have moved since, as one of two that are left was slow.
            Err(ControllerError::NotLeader { .. } | ControllerError::TimedOut) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => break answer,
        }
    };
    match answer {
        Err(ControllerError::Busy(sentence)) => {
            assert!(
                sentence.contains(&format!("controller {one} is a voter and does not know")),
                "{sentence}"
            );
        }
        other => panic!("{other:?}"),
    }
    let described = describe(&quorum).await;
    assert_eq!((ids(&described.voters), ids(&described.learners)), (vec![1, 2, 3], vec![new]));
    quorum.start_one(one).await;
    assert_eq!(alter(&quorum, add(new)).await, Ok(ControllerReply::VotersAltered));
    quorum.all_list(&[1, 2, 3, new]).await;
}

/// Without the silent one, the rest could decide nothing: that is said, as soon as its silence is noticed.
async fn eventually_refused(quorum: &Quorum, id: u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "never refused");
        let described = describe(quorum).await;
        let now =
            described.voters.iter().filter_map(|voter| voter.last_contact_ms).max().expect("the leader");
        let silent =
            described.voters.iter().any(|voter| voter.last_contact_ms.is_none_or(|at| now - at > 4_000));
        if silent {
            let (reason, sentence) = refusal(alter(quorum, remove(id)).await);
            assert_eq!(reason, Reason::InvalidRequest);
            assert!(sentence.contains("could decide nothing"), "{sentence}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_description_tells_how_far_each_one_is() {
    let mut quorum = Quorum::start(3, plain).await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    let leader = quorum.leader().await;
    let away = (1..=3).find(|id| *id != leader).expect("three");
    quorum.kill(away).await;
    for n in 0..10 {
        created(quorum.create(&format!("t{n}")).await);
    }
    let deadline = Instant::now() + PATIENCE;
    // The leader looks at how far the others are from time to time: the one that runs may have been behind each time so far.
    let described = loop {
        let described = describe(&quorum).await;
        let known = |voter: &VoterProgress| voter.last_contact_ms.is_some() && voter.caught_up_ms.is_some();
        if described.voters.iter().all(|voter| voter.id.0 == away || known(voter)) {
            break described;
        }
        assert!(Instant::now() < deadline, "it never catches up: {described:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_ne!(described.leader, ControllerId(away));
    assert!(described.epoch > 0);
    let state = quorum.running[described.leader.0 as usize - 1].as_ref().expect("running").state();
    assert!(described.committed >= state.applied());
    for voter in &described.voters {
        assert_eq!(voter.address, address(voter.id.0).to_string());
        // Whoever leads since has never heard from it.
        let lags = voter.matched.is_none_or(|matched| matched < described.committed);
        assert!(voter.id.0 != away || lags, "it lags: {voter:?}");
    }
    let lagging = |described: &QuorumDescription| {
        let voter = described.voters.iter().find(|voter| voter.id.0 == away).expect("listed").clone();
        voter.matched.is_none_or(|matched| matched < described.committed)
    };
    quorum.start_one(away).await;
    let deadline = Instant::now() + PATIENCE;
    while lagging(&describe(&quorum).await) {
        assert!(Instant::now() < deadline, "it never catches up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Every file of one controller, damaged: it does not start and says so, and the others have everything.
/// T-47, T-51, of a quorum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_controller_refuses_to_start_and_the_others_go_on() {
    let mut quorum = Quorum::start(3, |config| {
        plain(config);
        config.raft.snapshot_entries = 20;
        config.raft.keep_entries = 5;
    })
    .await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    for n in 0..30 {
        created(quorum.create(&format!("t{n}")).await);
    }
    let hurt = quorum.leader().await;
    let dir = quorum.dirs[hurt as usize - 1].path().to_owned();
    eventually("a snapshot is written", || {
        std::fs::read_dir(dir.join("snapshot")).expect("there").next().map(|_| ())
    })
    .await;
    quorum.stop(hurt).await;
    for path in files_below(&dir) {
        let whole = std::fs::read(&path).expect("readable");
        // All over the file, so that no second copy helps; and cuts, which may leave one of two copies whole.
        let mut damaged = vec![Vec::new(), whole.iter().map(|byte| byte ^ 0x11).collect::<Vec<u8>>()];
        if path.parent() != Some(&dir) {
            damaged.push(whole[..whole.len() / 3].to_vec());
        }
        for bytes in damaged {
            std::fs::write(&path, &bytes).expect("written");
            let (length, started) = (bytes.len(), quorum.try_start(hurt).await);
            let Err(error) = started else { panic!("it starts with {} of {length} bytes", path.display()) };
            let sentence = error.to_string();
            assert!(sentence.contains("is damaged"), "{}: {sentence}", path.display());
            std::fs::write(&path, &whole).expect("written");
        }
    }
    created(quorum.create("meanwhile").await);
    quorum.start_one(hurt).await;
    quorum.all_have_topic("meanwhile").await;
    quorum.all_have_topic("t0").await;
}

/// All files with content that must not be lost; the lock has none.
fn files_below(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("listed") {
        let entry = entry.expect("listed");
        let (path, kind) = (entry.path(), entry.file_type().expect("known"));
        if kind.is_dir() {
            found.extend(files_below(&path));
        } else if entry.file_name() != "lock" {
            found.push(path);
        }
    }
    found.sort();
    found
}
