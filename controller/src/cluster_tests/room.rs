//! Controllers whose disk fills up.

use super::{PATIENCE, Quorum, created, plain};
use crate::room::Space;
use proto_types::controller_api::*;
use proto_types::error::{ControllerError, Reason, Rejection};
use proto_types::ids::BrokerEpoch;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Takes a part of the room of the disk where it lies.
const BALLAST: &str = "ballast";

/// The room beside the ballast.
pub(super) fn space_of(directory: &Path) -> io::Result<Space> {
    let available_bytes = if directory.join(BALLAST).exists() { 1_000 } else { 1 << 30 };
    Ok(Space { total_bytes: 1 << 40, available_bytes })
}

type Answer = Result<ControllerReply, ControllerError>;

fn is_refused(answer: &Answer) -> bool {
    matches!(
        answer,
        Err(ControllerError::Rejected(Rejection { reason: Reason::PolicyViolation, message })) if message.contains("nearly full")
    )
}

/// Creates topics until the answer is as it should be: controllers look at their disks now and then.
async fn create_until(
    quorum: &Quorum,
    epoch: BrokerEpoch,
    name: impl Fn(u32) -> String,
    wanted: impl Fn(&Answer) -> bool,
) -> Answer {
    let deadline = Instant::now() + PATIENCE;
    let mut n = 0;
    loop {
        quorum.unfence(epoch).await;
        let answer = quorum.create(&name(n)).await;
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "still {answer:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
        n += 1;
    }
}

/// On a full disk topics can be deleted, and then created again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_the_reserve_topics_are_deleted_but_not_created() {
    let quorum = Quorum::start(3, plain).await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    let old = created(quorum.create("old").await);
    for dir in &quorum.dirs {
        std::fs::write(dir.path().join(BALLAST), b"").expect("writable");
    }
    assert!(is_refused(&create_until(&quorum, epoch, |n| format!("t{n}"), is_refused).await));
    let more = MorePartitions { name: "old".into(), count: 9, assignments: vec![] };
    let more = CreatePartitions { topics: vec![more], validate_only: false, timeout_ms: 0 };
    let more = ControllerRequest::CreatePartitions(more);
    let deadline = Instant::now() + PATIENCE;
    // Whoever leads since a moment may not have looked at its disk yet.
    while !is_refused(&quorum.ask_leader(&more).await) {
        assert!(Instant::now() < deadline, "never refused");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let delete = DeleteTopics { topics: vec![TopicRef::Id(old)], timeout_ms: 0 };
    match quorum.ask_leader(&ControllerRequest::DeleteTopics(delete)).await.expect("answered") {
        ControllerReply::TopicsDeleted(results) => assert!(results[0].is_ok(), "{results:?}"),
        other => panic!("{other:?}"),
    }
    for dir in &quorum.dirs {
        std::fs::remove_file(dir.path().join(BALLAST)).expect("removable");
    }
    created(create_until(&quorum, epoch, |_| "old".to_owned(), |answer| !is_refused(answer)).await);
    quorum.all_have_topic("old").await;
}
