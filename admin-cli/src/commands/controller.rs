//! `weir controller`: the voters of the metadata quorum (KIP-853).

use clap::Subcommand;
use kafka_wire::{Client, HostPort};
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::add_raft_voter::{AddRaftVoterRequest, Listener};
use kafka_wire_core::messages::remove_raft_voter::RemoveRaftVoterRequest;
use serde_json::json;

use crate::cli::Global;
use crate::cluster_view;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::quorum_view::{self, QuorumView};

/// Kafka's name of the endpoint at which controllers speak.
const LISTENER: &str = "CONTROLLER";

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
                remove(&client, id).await?;
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

async fn remove(client: &Client, id: i32) -> Result<(), Failure> {
    let request = RemoveRaftVoterRequest {
        cluster_id: Some(cluster_view::cluster(client).await?.id.into()),
        voter_id: id,
        ..RemoveRaftVoterRequest::default()
    };
    let response = client.call(&request).await?;
    done(format!("remove controller {id}"), response.error_code, response.error_message.as_deref())
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
}
