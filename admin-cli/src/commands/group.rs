//! `weir group`: groups of consumers, how far they have come, and how to set them back or forward.

mod delete;
mod describe;
mod reset;

use clap::Subcommand;
use kafka_wire_core::messages::list_groups::ListedGroup;
use serde_json::json;

use crate::cli::Global;
use crate::failure::Failure;
use crate::groups::Groups;
use crate::output::{Format, Output, printable};

/// What to do with groups.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List groups
    List,
    /// Show members of groups, what they have committed, and how far they are behind
    Describe {
        /// Names of groups
        #[arg(required = true, value_name = "GROUP")]
        groups: Vec<String>,
    },
    /// Set the offsets of a group that nobody is in; only shows the plan without --execute
    Reset(reset::ResetArgs),
    /// Delete groups that nobody is in, or their offsets of some topics
    Delete(delete::DeleteArgs),
}

pub(crate) async fn run(
    global: &Global,
    command: GroupCommand,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let client = global.connect().await?;
    let groups = Groups { client: &client, patience: global.timeout };
    match command {
        GroupCommand::List => list(groups, output).await,
        GroupCommand::Describe { groups: names } => {
            for (index, name) in names.iter().enumerate() {
                describe::run(groups, name, index > 0, output).await?;
            }
            Ok(())
        }
        GroupCommand::Reset(args) => reset::run(groups, args, output).await,
        GroupCommand::Delete(args) => delete::run(groups, args, output).await,
    }
}

async fn list(groups: Groups<'_>, output: &mut Output<'_>) -> Result<(), Failure> {
    let groups = groups.list().await?;
    if output.format == Format::Json {
        let list = groups.iter().map(|(name, (node, group))| {
            json!({
                "group": name,
                "state": told(&group.group_state),
                "type": told(&group.group_type),
                "protocol_type": &*group.protocol_type,
                "node": node,
            })
        });
        return output.json(&list.collect());
    }
    let rows: Vec<_> = groups.iter().map(|(name, (node, group))| list_row(name, *node, group)).collect();
    output.table(&["GROUP", "STATE", "TYPE", "PROTOCOL", "NODE"], &rows)
}

fn list_row(name: &str, node: i32, group: &ListedGroup) -> Vec<String> {
    let shown = |text: &str| printable(told(text).unwrap_or("-"));
    vec![
        printable(name),
        shown(&group.group_state),
        shown(&group.group_type),
        shown(&group.protocol_type),
        node.to_string(),
    ]
}

/// A text, unless it is empty: older versions do not tell, and offsets alone have no protocol.
fn told(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
