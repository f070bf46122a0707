//! `weir cluster`: who is there, and what is wrong; and the files of a new cluster.

mod extend;
pub(crate) mod init;
pub(crate) mod layout;
mod status;

use clap::Subcommand;

use crate::cli::Global;
use crate::failure::Failure;
use crate::output::Output;

/// What to show of the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Nodes, controllers, what they lead, and partitions and followers that are not well
    Status,
    /// Make the files of a new cluster: id, certificates, and a configuration file for each daemon
    Init(init::InitArgs),
    /// Make the files of further daemons for a cluster that `init` made
    Extend(extend::ExtendArgs),
}

pub(crate) async fn run(
    global: &Global,
    command: ClusterCommand,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    match command {
        ClusterCommand::Status => status::run(global, &global.connect().await?, output).await,
        ClusterCommand::Init(arguments) => init::run(arguments, output),
        ClusterCommand::Extend(arguments) => extend::run(arguments, output),
    }
}
