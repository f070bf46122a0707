//! `weir partition`: moves partitions to other nodes, and lets other replicas lead.

mod elect;
mod replicas;

use clap::Subcommand;

use crate::cli::Global;
use crate::failure::Failure;
use crate::output::Output;

/// What to do with partitions.
#[derive(Debug, Subcommand)]
pub(crate) enum PartitionCommand {
    /// Move partitions to other nodes, or cancel moves
    Move(replicas::MoveArgs),
    /// Show the moves that are under way, and how far they are
    Moves(replicas::MovesArgs),
    /// Let the preferred replicas lead; or, where none that is in sync is left, any live one
    Elect(elect::ElectArgs),
}

pub(crate) async fn run(
    global: &Global,
    command: PartitionCommand,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let client = global.connect().await?;
    match command {
        PartitionCommand::Move(args) => replicas::run(global, &client, args, output).await,
        PartitionCommand::Moves(args) => replicas::under_way(global, &client, &args, output).await,
        PartitionCommand::Elect(args) => elect::run(global, &client, args, output).await,
    }
}
