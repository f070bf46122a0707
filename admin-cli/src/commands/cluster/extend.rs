//! `weir cluster extend`: the files of further daemons, beside those that `cluster init` made.
//!
//! The folder with the cluster's authority and its daemons' folders tells which ids and ports are taken; an id is never
//! given again as long as its folder is there. A storage node or coordinator joins by being started, a controller follows
//! without a vote until `weir controller add` gives it one.

use std::fs;
use std::path::{Path, PathBuf};

use quic_transport::pki::CertificateAuthority;
use quic_transport::{Identity, Role};
use serde_json::{Value, json};

use super::init::{self, AUTHORITY};
use super::layout::{self, Daemon, Description, Host, config_text, lay_out_more, read_back};
use crate::certificates::{MakeError, issue};
use crate::failure::Failure;
use crate::output::{Format, Output};

/// Arguments of `cluster extend`.
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true)))]
pub(crate) struct ExtendArgs {
    /// The folder that `cluster init` made, with its `authority`
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Host of each further controller
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = layout::host, group = "what")]
    controllers: Vec<Host>,
    /// Host of each further storage node, as Kafka clients reach it; the port is the one for Kafka clients
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = layout::host, group = "what")]
    storage_nodes: Vec<Host>,
    /// Host of each further coordinator
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = layout::host, group = "what")]
    coordinators: Vec<Host>,
    /// Where the daemons' folders will lie on their machines, e.g. /etc/weir; DIR itself if not given
    #[arg(long, value_name = "PATH")]
    etc: Option<PathBuf>,
    /// Where the daemons' data will lie, a folder for each, e.g. /var/lib/weir; `data` in each daemon's folder if not given
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Only check and show what would be made
    #[arg(long)]
    plan: bool,
}

pub(super) fn run(args: ExtendArgs, output: &mut Output<'_>) -> Result<(), Failure> {
    let directory = init::absolute(&args.directory)?;
    let authority = CertificateAuthority::load(&directory.join(AUTHORITY)).map_err(|error| {
        Failure::failed(format!("{} holds no authority of a cluster: {error}", directory.display()))
            .hint("give the folder that `weir cluster init` made, with its `authority`")
    })?;
    let existing = existing(&directory)?;
    let root = args.etc.as_deref().map_or_else(|| Ok(directory.clone()), init::absolute)?;
    let data_root = args.data.as_deref().map(init::absolute).transpose()?;
    let description = Description {
        controllers: args.controllers,
        storage_nodes: args.storage_nodes,
        coordinators: args.coordinators,
        root,
        data_root,
    };
    let added = lay_out_more(&description, &existing).map_err(Failure::usage)?;
    if !args.plan {
        make(&directory, &authority, &existing, &added, &description).map_err(|error| {
            Failure::failed(format!("cannot make the files in {}: {error}", directory.display()))
        })?;
    }
    show(args.plan, &directory, &added, &description, output)
}

/// The daemons whose folders are there.
fn existing(directory: &Path) -> Result<Vec<Daemon>, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("cannot read {}: {error}", directory.display()))
    };
    let mut daemons = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| failed(&error))? {
        let name = entry.map_err(|error| failed(&error))?.file_name();
        let Some((role, id)) = name.to_str().and_then(daemon_name) else { continue };
        let file = directory.join(&name).join(format!("{role}.toml"));
        daemons.push(read_back(role, id, &file).map_err(|error| failed(&error))?);
    }
    daemons.sort_by_key(|daemon| (daemon.role.to_string(), daemon.id));
    Ok(daemons)
}

/// `storage-node-2`.
fn daemon_name(name: &str) -> Option<(Role, u64)> {
    let (role, id) = name.rsplit_once('-')?;
    let roles = [Role::Controller, Role::StorageNode, Role::Coordinator];
    let role = roles.into_iter().find(|known| known.to_string() == role)?;
    Some((role, id.parse().ok()?))
}

fn make(
    directory: &Path,
    authority: &CertificateAuthority,
    existing: &[Daemon],
    added: &[Daemon],
    description: &Description,
) -> Result<(), MakeError> {
    let cluster_id = authority.cluster_id();
    for daemon in added {
        // A new controller names those that it joins, and itself; the others only those that are there already.
        let mut known = existing.to_vec();
        if daemon.role == Role::Controller {
            known.push(daemon.clone());
        }
        let folder = directory.join(&daemon.name);
        issue(authority, &folder, &Identity::new(cluster_id, daemon.role, daemon.id)?)?;
        fs::write(folder.join(daemon.file()), config_text(daemon, &known, cluster_id, description))?;
    }
    Ok(())
}

fn show(
    plan: bool,
    directory: &Path,
    added: &[Daemon],
    description: &Description,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    if output.format == Format::Json {
        let daemons = added.iter().map(|daemon| {
            let config = description.root.join(&daemon.name).join(daemon.file());
            json!({
                "role": daemon.role.to_string(),
                "id": daemon.id,
                "address": daemon.address.to_string(),
                "folder": directory.join(&daemon.name),
                "command": [daemon.program(), "--config", config.to_string_lossy()],
            })
        });
        return output.json(&json!({ "made": !plan, "daemons": daemons.collect::<Value>() }));
    }
    let verb = if plan { "would make" } else { "made" };
    output.line(&format!("{verb} the files of further daemons in {}", directory.display()))?;
    output.line("")?;
    init::show_starts(added, description, output)?;
    for daemon in added.iter().filter(|daemon| daemon.role == Role::Controller) {
        output.line("")?;
        output.line(&format!(
            "When {} runs, `weir controller add {} {}` gives it its vote.",
            daemon.name, daemon.id, daemon.address
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use quic_transport::pki::{CredentialFiles, Credentials};

    use super::*;
    use crate::cli::Cli;
    use crate::output::captured;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ExtendArgs,
    }

    fn extend(arguments: &[&str]) -> Result<String, Failure> {
        let line = Line::try_parse_from([&["extend"], arguments].concat()).unwrap();
        let mut result = Ok(());
        let text = captured(Format::Table, |output| result = run(line.args, output));
        result.map(|()| text)
    }

    fn init(directory: &str) {
        let cli = Cli::try_parse_from(["weir", "cluster", "init", directory]).unwrap();
        let crate::cli::Command::Cluster(super::super::ClusterCommand::Init(arguments)) = cli.command else {
            panic!("it is init");
        };
        captured(Format::Table, |output| init::run(arguments, output).unwrap());
    }

    #[test]
    fn further_daemons_get_ids_ports_and_certificates_of_their_own() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("cluster");
        let path = directory.to_str().unwrap();
        init(path);
        let plan = extend(&[path, "--storage-nodes", "127.0.0.1,n.example", "--plan"]).unwrap();
        assert!(plan.contains("storage-node-2") && plan.contains("n.example:9092"), "{plan}");
        assert!(!directory.join("storage-node-2").exists());
        let text = extend(&[path, "--storage-nodes", "127.0.0.1", "--controllers", "127.0.0.1"]).unwrap();
        assert!(text.contains("`weir controller add 2 127.0.0.1:9193` gives it its vote"), "{text}");
        let again = extend(&[path, "--storage-nodes", "127.0.0.1"]).unwrap();
        assert!(again.contains("storage-node-3") && again.contains("127.0.0.1:9094"), "{again}");
        let first =
            Credentials::load(&CredentialFiles::in_directory(&directory.join("storage-node-1"))).unwrap();
        let third =
            Credentials::load(&CredentialFiles::in_directory(&directory.join("storage-node-3"))).unwrap();
        assert_eq!(third.identity().cluster_id(), first.identity().cluster_id());
        let file = directory.join("storage-node-3/storage-node.toml");
        let config = storage_node::config::Config::load(Some(&file), &[]).unwrap();
        assert_eq!((config.node_id, config.controllers.len()), (3, 2));
    }

    #[test]
    fn a_folder_without_authority_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let refused = extend(&[temporary.path().to_str().unwrap(), "--controllers", "c"]).unwrap_err();
        assert!(refused.to_string().contains("holds no authority"), "{refused}");
        assert!(Line::try_parse_from(["extend", "d"]).is_err(), "nothing was asked for");
    }
}
