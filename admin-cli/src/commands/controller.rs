//! `weir controller`: the voters of the metadata quorum (KIP-853).

use clap::Subcommand;
use kafka_wire::{Client, ClientError, HostPort};
use kafka_wire_core::messages::add_raft_voter::{AddRaftVoterRequest, Listener};
use kafka_wire_core::messages::remove_raft_voter::RemoveRaftVoterRequest;
use kafka_wire_core::{ErrorCode, Str};
use serde_json::json;
use std::time::Duration;

use crate::cli::Global;
use crate::clock::monotonic_now;
use crate::cluster_view;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::quorum_view::{self, QuorumView};

/// Kafka's name of the endpoint at which controllers speak.
const LISTENER: &str = "CONTROLLER";

/// Pause before it is asked again whether a change was made.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// What to do with controllers.
#[derive(Debug, Subcommand)]
pub(crate) enum ControllerCommand {
    /// Show the controllers, who leads, and how far the others are
    List,
    /// Give a controller that runs with an empty directory a vote
    Add {
        /// Id of the controller; one that was never used before
        #[arg(value_parser = clap::value_parser!(i32).range(1..))]
        id: i32,
        /// Where the other daemons reach it
        #[arg(value_name = "HOST:PORT")]
        address: HostPort,
        /// Only show what would be done
        #[arg(long)]
        plan: bool,
    },
    /// Take a controller's vote away; its id is never used again
    Remove {
        /// Id of the controller
        #[arg(value_parser = clap::value_parser!(i32).range(1..))]
        id: i32,
        /// Only show what would be done
        #[arg(long)]
        plan: bool,
    },
}

pub(crate) async fn run(
    global: &Global,
    command: ControllerCommand,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let client = global.connect().await?;
    match command {
        ControllerCommand::List => list(&client, output).await,
        ControllerCommand::Add { id, address, plan } => {
            check_new(&quorum_view::quorum(&client).await?, id)?;
            if !plan {
                add(global, &client, id, &address).await?;
            }
            let action = format!("controller {id} at {address} to the voters");
            show(id, "add", plan, &format!("{} {action}", if plan { "would add" } else { "added" }), output)
        }
        ControllerCommand::Remove { id, plan } => {
            check_voter(&quorum_view::quorum(&client).await?, id)?;
            if !plan {
                remove(global, &client, id).await?;
            }
            let action = format!("controller {id} from the voters");
            let verb = if plan { "would remove" } else { "removed" };
            show(id, "remove", plan, &format!("{verb} {action}"), output)
        }
    }
}

async fn list(client: &Client, output: &mut Output<'_>) -> Result<(), Failure> {
    let quorum = quorum_view::quorum(client).await?;
    match output.format {
        Format::Json => output.json(&quorum.to_json()),
        Format::Table => output.table(&QuorumView::HEADER, &quorum.rows()),
    }
}

fn check_new(quorum: &QuorumView, id: i32) -> Result<(), Failure> {
    if quorum.members.iter().any(|member| member.id == id && member.voter) {
        return Err(Failure::failed(format!("controller {id} has a vote already")).hint(
            "`weir controller list` shows the voters; a new controller needs an id that was never used",
        ));
    }
    Ok(())
}

fn check_voter(quorum: &QuorumView, id: i32) -> Result<(), Failure> {
    let voters: Vec<i32> = quorum.members.iter().filter(|m| m.voter).map(|m| m.id).collect();
    if !voters.contains(&id) {
        return Err(Failure::not_found(format!("no controller {id} has a vote"))
            .hint("`weir controller list` shows the voters"));
    }
    if voters.len() == 1 {
        return Err(Failure::failed(format!("controller {id} is the only voter"))
            .hint("add another one first: `weir controller add ID HOST:PORT`"));
    }
    Ok(())
}

async fn add(global: &Global, client: &Client, id: i32, address: &HostPort) -> Result<(), Failure> {
    let listener = Listener { name: LISTENER.into(), host: address.host.as_str().into(), port: address.port };
    let request = AddRaftVoterRequest {
        cluster_id: Some(cluster_view::cluster(client).await?.id.into()),
        timeout_ms: global.change_timeout_ms(),
        voter_id: id,
        listeners: vec![listener],
        ..AddRaftVoterRequest::default()
    };
    let response = client.call(&request).await?;
    done(format!("add controller {id}"), response.error_code, response.error_message.as_deref())
}

/// Takes away the vote of a controller that had one when this command looked. Whoever changes the quorum may lose its lead over
/// it, or go away itself, and then nobody says whether it was done: asked again until that is known, or the time is up.
async fn remove(global: &Global, client: &Client, id: i32) -> Result<(), Failure> {
    let request = RemoveRaftVoterRequest {
        cluster_id: Some(cluster_view::cluster(client).await?.id.into()),
        voter_id: id,
        ..RemoveRaftVoterRequest::default()
    };
    let until = monotonic_now() + global.timeout;
    let mut asked_before = false;
    loop {
        let answer = client.call(&request).await;
        let answer = answer.map(|response| (response.error_code, response.error_message));
        match after_removal(id, asked_before, answer) {
            Asked::Done => return Ok(()),
            Asked::Refused(failure) => return Err(failure),
            Asked::Unknown(failure) if monotonic_now() >= until => return Err(failure),
            Asked::Unknown(_) => tokio::time::sleep(ASK_AGAIN).await,
        }
        asked_before = true;
    }
}

/// What is known once a removal was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Done,
    /// It will not be done, for this reason.
    Refused(Failure),
    /// It may have been done, or may still be. With what to say if nothing more becomes known.
    Unknown(Failure),
}

/// Whether the cluster may do what was asked for though there is no answer.
fn may_have_arrived(error: &ClientError) -> bool {
    match error {
        ClientError::Io { .. } | ClientError::Closed { .. } | ClientError::Timeout { .. } => true,
        ClientError::Unreachable(_)
        | ClientError::NoAddress
        | ClientError::UnknownNode(_)
        | ClientError::Kafka { .. }
        | ClientError::UnsupportedVersion { .. }
        | ClientError::Decode { .. }
        | ClientError::Encode { .. }
        | ClientError::Protocol { .. } => false,
    }
}

/// The controller had a vote before.
fn after_removal(
    id: i32,
    asked_before: bool,
    answer: Result<(ErrorCode, Option<Str>), ClientError>,
) -> Asked {
    let (code, message) = match answer {
        Ok(answer) => answer,
        Err(error) => {
            return match may_have_arrived(&error) || asked_before {
                true => Asked::Unknown(error.into()),
                false => Asked::Refused(error.into()),
            };
        }
    };
    let failure = Failure::refused(format!("remove controller {id}"), code, message.as_deref());
    match code {
        // The storage node asks one controller after another: the first may have done it and lost its lead over it.
        ErrorCode::None | ErrorCode::VoterNotFound => Asked::Done,
        ErrorCode::NotController | ErrorCode::RequestTimedOut => Asked::Unknown(failure),
        // Maybe the change that was asked for.
        ErrorCode::ReassignmentInProgress if asked_before => Asked::Unknown(failure),
        _ => Asked::Refused(failure),
    }
}

fn done(what: String, code: ErrorCode, message: Option<&str>) -> Result<(), Failure> {
    if code.is_none() { Ok(()) } else { Err(Failure::refused(what, code, message)) }
}

fn show(id: i32, action: &str, plan: bool, sentence: &str, output: &mut Output<'_>) -> Result<(), Failure> {
    match output.format {
        Format::Json => output.json(&json!({ "controller": id, "action": action, "planned": plan })),
        Format::Table => output.line(sentence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum_view::MemberView;

    #[test]
    fn a_plan_sees_what_cannot_be() {
        let member = |id, voter| MemberView { id, voter, ..MemberView::default() };
        let three = QuorumView {
            members: vec![member(1, true), member(2, true), member(4, false)],
            ..Default::default()
        };
        assert!(check_new(&three, 3).is_ok() && check_new(&three, 4).is_ok());
        assert_eq!(check_new(&three, 2).unwrap_err().exit_code(), 1);
        assert!(check_voter(&three, 2).is_ok());
        assert_eq!(check_voter(&three, 4).unwrap_err().exit_code(), 4);
        let one = QuorumView { members: vec![member(1, true)], ..Default::default() };
        assert!(check_voter(&one, 1).unwrap_err().to_string().contains("only voter"));
    }

    #[test]
    fn a_removal_that_lost_its_answer_is_found_to_be_done() {
        let after = |asked_before, code| after_removal(3, asked_before, Ok((code, None)));
        assert_eq!(after(false, ErrorCode::None), Asked::Done);
        // It had a vote, and has none any more: whoever answered last is not who took it away.
        for asked_before in [false, true] {
            assert_eq!(after(asked_before, ErrorCode::VoterNotFound), Asked::Done);
            for code in [ErrorCode::NotController, ErrorCode::RequestTimedOut] {
                assert!(matches!(after(asked_before, code), Asked::Unknown(_)), "{code:?}");
            }
            assert!(
                matches!(after(asked_before, ErrorCode::InvalidRequest), Asked::Refused(_)),
                "the only voter"
            );
        }
        let change_under_way = ErrorCode::ReassignmentInProgress;
        assert!(matches!(after(false, change_under_way), Asked::Refused(_)), "somebody else's");
        assert!(matches!(after(true, change_under_way), Asked::Unknown(_)), "it may be ours");
        let unreachable = |asked_before| after_removal(3, asked_before, Err(ClientError::NoAddress));
        assert!(matches!(unreachable(false), Asked::Refused(failure) if failure.exit_code() == 3));
        assert!(matches!(unreachable(true), Asked::Unknown(failure) if failure.exit_code() == 3));
    }
}
