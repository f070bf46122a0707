//! `weir cluster init`: the files of a new cluster of separate processes.
//!
//! ```text
//! DIR/
//!   authority/        the cluster's certificate authority: keep it off the machines that serve
//!   controller-1/     controller.toml  node.pem  node.key  ca.pem: all that this controller needs
//!   storage-node-1/   …
//!   coordinator-1/    …
//! ```
//!
//! The files are made beside `DIR` and get its name when they are complete: there is no half-made cluster.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use quic_transport::Identity;
use serde_json::{Value, json};

use super::layout::{self, Daemon, Description, Host, config_text, lay_out};
use crate::certificates::{MakeError, issue, make_authority, new_cluster_id, private_directories};
use crate::failure::Failure;
use crate::output::{Format, Output};

pub(super) const AUTHORITY: &str = "authority";

/// Arguments of `cluster init`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct InitArgs {
    /// The folder to make; it must not exist, or be empty
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Host of each controller: 1, 3 or 5, separated by commas
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = layout::host, default_value = "127.0.0.1")]
    controllers: Vec<Host>,
    /// Host of each storage node, as Kafka clients reach it; the port is the one for Kafka clients
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = layout::host, default_value = "127.0.0.1")]
    storage_nodes: Vec<Host>,
    /// Host of each coordinator
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = layout::host, default_value = "127.0.0.1")]
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

pub(super) fn run(args: InitArgs, output: &mut Output<'_>) -> Result<(), Failure> {
    let directory = absolute(&args.directory)?;
    let root = args.etc.as_deref().map_or_else(|| Ok(directory.clone()), absolute)?;
    let data_root = args.data.as_deref().map(absolute).transpose()?;
    let description = Description {
        controllers: args.controllers,
        storage_nodes: args.storage_nodes,
        coordinators: args.coordinators,
        root,
        data_root,
    };
    let daemons = lay_out(&description).map_err(Failure::usage)?;
    refuse_used(&directory)?;
    let cluster_id = new_cluster_id();
    if !args.plan {
        make(&directory, &cluster_id, &daemons, &description).map_err(|error| {
            Failure::failed(format!("cannot make the cluster's files in {}: {error}", directory.display()))
        })?;
    }
    show(args.plan, &directory, &cluster_id, &daemons, &description, output)
}

/// The path for configuration files, which must not depend on where a daemon is started.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let absolute =
        std::path::absolute(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    if layout::writable_in_config(&absolute) {
        Ok(absolute)
    } else {
        Err(Failure::usage(format!("{absolute:?} cannot be written in a configuration file")))
    }
}

fn refuse_used(directory: &Path) -> Result<(), Failure> {
    let used = match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(Failure::failed(format!("cannot read {}: {error}", directory.display()))),
    };
    if used {
        return Err(Failure::failed(format!("{} exists and is not empty", directory.display()))
            .hint("give a folder that does not exist yet; a cluster's files are never overwritten"));
    }
    Ok(())
}

/// Makes the files beside `directory` and gives them its name when they are complete.
pub(crate) fn make(
    directory: &Path,
    cluster_id: &str,
    daemons: &[Daemon],
    description: &Description,
) -> Result<(), MakeError> {
    let mut name = directory.as_os_str().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let new = PathBuf::from(name);
    let made = (|| {
        let authority = make_authority(&new.join(AUTHORITY), cluster_id)?;
        private_directories().create(&new)?;
        for daemon in daemons {
            let folder = new.join(&daemon.name);
            issue(&authority, &folder, &Identity::new(cluster_id, daemon.role, daemon.id)?)?;
            let text = config_text(daemon, daemons, cluster_id, description);
            fs::write(folder.join(daemon.file()), text)?;
        }
        fs::rename(&new, directory)?;
        Ok(())
    })();
    if made.is_err() {
        // What is left cannot be mistaken for a cluster; that it could not be removed says nothing new.
        drop(fs::remove_dir_all(&new));
    }
    made
}

fn show(
    plan: bool,
    directory: &Path,
    cluster_id: &str,
    daemons: &[Daemon],
    description: &Description,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let config = |daemon: &Daemon| description.root.join(&daemon.name).join(daemon.file());
    if output.format == Format::Json {
        let daemons: Value = daemons
            .iter()
            .map(|daemon| {
                json!({
                    "role": daemon.role.to_string(),
                    "id": daemon.id,
                    "address": daemon.address.to_string(),
                    "folder": directory.join(&daemon.name),
                    "command": [daemon.program(), "--config", config(daemon).to_string_lossy()],
                })
            })
            .collect();
        return output.json(&json!({
            "made": !plan,
            "cluster_id": if plan { Value::Null } else { cluster_id.into() },
            "authority": directory.join(AUTHORITY),
            "daemons": daemons,
        }));
    }
    if plan {
        output.line(&format!("would make the files of a new cluster in {}", directory.display()))?;
    } else {
        output.line(&format!("made the cluster {cluster_id} in {}", directory.display()))?;
    }
    output.line("")?;
    show_starts(daemons, description, output)?;
    output.line("")?;
    if description.root != directory {
        output.line(&format!(
            "Copy each daemon's folder to {} on its machine, readable by the daemon's user only.",
            description.root.display()
        ))?;
    }
    output.line(&format!(
        "Keep {} off the machines that serve: whoever has its key can join the cluster.",
        directory.join(AUTHORITY).display()
    ))
}

/// How each daemon is started.
pub(super) fn show_starts(
    daemons: &[Daemon],
    description: &Description,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let row = |daemon: &Daemon| {
        let config = description.root.join(&daemon.name).join(daemon.file());
        let start = format!("{} --config {}", daemon.program(), config.display());
        vec![daemon.name.clone(), daemon.address.to_string(), start]
    };
    let rows: Vec<_> = daemons.iter().map(row).collect();
    output.table(&["DAEMON", "ADDRESS", "START"], &rows)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use clap::Parser;
    use quic_transport::pki::{CredentialFiles, Credentials};

    use super::*;
    use crate::output::captured;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: InitArgs,
    }

    fn init(arguments: &[&str], format: Format) -> Result<String, Failure> {
        let line = Line::try_parse_from([&["init"], arguments].concat()).unwrap();
        let mut result = Ok(());
        let text = captured(format, |output| result = run(line.args, output));
        result.map(|()| text)
    }

    #[test]
    fn each_daemon_gets_a_folder_with_all_that_it_needs() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("cluster");
        let path = directory.to_str().unwrap();
        let text = init(&[path, "--controllers", "a,b,c"], Format::Json).unwrap();
        let shown: Value = serde_json::from_str(&text).unwrap();
        for (name, role) in [
            ("controller-3", "controller"),
            ("storage-node-1", "storage-node"),
            ("coordinator-1", "coordinator"),
        ] {
            let folder = directory.join(name);
            let credentials = Credentials::load(&CredentialFiles::in_directory(&folder)).unwrap();
            let id = name.rsplit('-').next().unwrap();
            let cluster_id = shown["cluster_id"].as_str().unwrap();
            assert_eq!(credentials.identity().to_string(), format!("weir://{cluster_id}/{role}/{id}"));
            assert!(folder.join(format!("{role}.toml")).is_file());
            assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        }
        assert_eq!(shown["daemons"].as_array().unwrap().len(), 5);
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1, "nothing is left beside it");
        let again = init(&[path], Format::Table).unwrap_err();
        assert!(again.to_string().contains("exists and is not empty"), "{again}");
    }

    #[test]
    fn a_plan_makes_nothing_and_says_where_files_will_lie() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("cluster");
        let arguments =
            [directory.to_str().unwrap(), "--plan", "--etc", "/etc/weir", "--data", "/var/lib/weir"];
        let text = init(&arguments, Format::Table).unwrap();
        assert!(text.contains("weir-controller --config /etc/weir/controller-1/controller.toml"), "{text}");
        assert!(!directory.exists());
        let refused = init(&[directory.to_str().unwrap(), "--controllers", "a,b"], Format::Table);
        assert_eq!(refused.unwrap_err().exit_code(), 2);
    }

    #[test]
    fn what_was_begun_and_failed_is_removed() {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("file");
        fs::write(&file, "precious").unwrap();
        let inside = file.join("cluster");
        assert_eq!(init(&[inside.to_str().unwrap()], Format::Table).unwrap_err().exit_code(), 1);
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    }
}
