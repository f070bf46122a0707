//! `weir log`: shows and checks the files of logs, while no process has them open.

mod dump_text;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use log_engine::inspect::{
    DumpError, Finding, Item, Severity, Verdict, dump_file, flushed_ends, verify_data_dir, verify_log,
};
use log_engine::{Disk, LogName, RealDisk};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Format, Output, count_of, printable};

/// What to do with the files of logs.
#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Show what files of a log say: segments, indexes, snapshots, epochs, seals
    Dump(DumpArgs),
    /// Check all files of a log, or of a data directory and all logs in it, against each other
    Verify(VerifyArgs),
}

/// Arguments of `weir log dump`.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show the records of each batch too
    #[arg(long)]
    records: bool,
}

/// Arguments of `weir log verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Directories of logs, or data directories
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

/// Files are read on this thread: nothing else runs beside an offline command.
pub(crate) fn run(command: LogCommand, output: &mut Output<'_>) -> Result<(), Failure> {
    match command {
        LogCommand::Dump(args) => args.files.iter().try_for_each(|file| dump(file, args.records, output)),
        LogCommand::Verify(args) => verify(&args.dirs, output),
    }
}

fn dump(file: &Path, records: bool, output: &mut Output<'_>) -> Result<(), Failure> {
    if output.format == Format::Table {
        output.line(&format!("Dumping {}", file.display()))?;
    }
    let (mut result, mut broken) = (Ok(()), Vec::new());
    let dumped = dump_file(&RealDisk, file, &mut |item| {
        if let Item::Broken { position, .. } | Item::Batch { valid: false, position, .. } = item {
            broken.push(position);
        }
        if result.is_ok() {
            result = show(&item, records, output);
        }
    });
    dumped.map_err(|error| undumped(&error))?;
    result?;
    let Some(first) = broken.first() else { return Ok(()) };
    let parts = count_of(broken.len(), "part");
    let message = format!("{} is damaged in {parts}, first at byte {first}", file.display());
    Err(Failure::failed(message).hint("`weir log verify` on its directory tells what else is wrong"))
}

fn undumped(error: &DumpError) -> Failure {
    let message = error.to_string();
    let DumpError::Io(file) = error else { return Failure::usage(message) };
    match file.source.kind() {
        ErrorKind::NotFound => Failure::not_found(message).hint(
            "each log has a directory of its own within the node's data directory; its files are there",
        ),
        ErrorKind::PermissionDenied => {
            Failure::failed(message).hint("run it as the user that the node runs as")
        }
        _ => Failure::failed(message),
    }
}

fn show(item: &Item, records: bool, output: &mut Output<'_>) -> Result<(), Failure> {
    match output.format {
        Format::Table => dump_text::lines(item, records).iter().try_for_each(|line| output.line(line)),
        Format::Json => output.json(&dump_text::to_json(item, records)),
    }
}

fn verify(dirs: &[PathBuf], output: &mut Output<'_>) -> Result<(), Failure> {
    let (mut logs, mut documents) = (Vec::new(), Vec::new());
    let mut beside_logs = Vec::new();
    for dir in dirs {
        let found = logs_in(dir)?;
        let beside = verify_data_dir(&RealDisk, dir).map_err(|error| Failure::failed(error.to_string()))?;
        beside_logs.extend(beside.map(|findings| (dir, findings)));
        if found.is_empty() && beside_logs.last().is_none_or(|(last, _)| *last != dir) {
            let message = format!("{} holds no segments, nor do the directories in it", dir.display());
            return Err(Failure::not_found(message));
        }
        logs.extend(found);
    }
    let (mut damaged, mut rebuildable) = (0_usize, 0_usize);
    for log in &logs {
        let mut verdict =
            verify_log(&RealDisk, &log.dir).map_err(|error| Failure::failed(error.to_string()))?;
        if let Some(flushed) = log.flushed {
            verdict.check_flushed(&log.dir, flushed);
        }
        match verdict.severity() {
            Some(Severity::Damage) => damaged += 1,
            Some(Severity::Rebuildable) => rebuildable += 1,
            Some(Severity::Note) | None => {}
        }
        match output.format {
            Format::Table => print_verdict(&log.dir, &verdict, output)?,
            Format::Json => documents.push(verdict_json(&log.dir, &verdict)),
        }
    }
    for (dir, findings) in &beside_logs {
        match output.format {
            Format::Table => print_data_dir(dir, findings, output)?,
            Format::Json => documents.push(data_dir_json(dir, findings)),
        }
    }
    if output.format == Format::Json {
        output.json(&Value::Array(documents))?;
    }
    summary(logs.len(), damaged, rebuildable)?;
    beside_logs.iter().try_for_each(|(dir, findings)| data_dir_summary(dir, findings))
}

fn summary(logs: usize, damaged: usize, rebuildable: usize) -> Result<(), Failure> {
    match (damaged, rebuildable) {
        (0, 0) => Ok(()),
        (0, some) => {
            Err(Failure::failed(format!("{some} of {logs} logs have files that are to be built anew"))
                .hint("no record is lost: the next start or scrub of the node does it"))
        }
        (some, _) => Err(Failure::failed(format!("{some} of {logs} logs have damaged records"))
            .hint("with other copies the node replaces such a log by itself; else restore it from a backup")),
    }
}

fn data_dir_summary(dir: &Path, findings: &[Finding]) -> Result<(), Failure> {
    let dir = dir.display();
    match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Note) | None => Ok(()),
        Some(Severity::Rebuildable) => {
            Err(Failure::failed(format!("the data directory {dir} has files that are to be built anew"))
                .hint("no record is lost: each finding says what the next start makes of it"))
        }
        Some(Severity::Damage) => {
            Err(Failure::failed(format!("the data directory {dir} has damaged or missing files"))
                .hint("each finding says which; restore the file from a backup, or see docs/damage.md"))
        }
    }
}

/// A log's directory, and the offset up to which the data directory knows it to be on disk.
struct FoundLog {
    dir: PathBuf,
    flushed: Option<i64>,
}

/// The log in `dir`, or those in its directories.
fn logs_in(dir: &Path) -> Result<Vec<FoundLog>, Failure> {
    let unreadable =
        |error: std::io::Error| Failure::not_found(format!("cannot list {}: {error}", dir.display()));
    let entries = RealDisk.list(dir).map_err(unreadable)?;
    if entries.iter().any(|entry| !entry.is_dir && entry.name.ends_with(".log")) {
        return Ok(vec![FoundLog { dir: dir.to_owned(), flushed: None }]);
    }
    let ends = flushed_ends(&RealDisk, dir).map_err(|error| Failure::failed(error.to_string()))?;
    let mut found = Vec::new();
    for entry in entries.iter().filter(|entry| entry.is_dir) {
        let inner = dir.join(&entry.name);
        let is_log = RealDisk.list(&inner).is_ok_and(|names| names.iter().any(|n| n.name.ends_with(".log")));
        if is_log {
            let name = LogName::parse(&entry.name);
            let flushed =
                name.and_then(|name| ends.iter().find(|(log, _)| *log == name)).map(|(_, end)| *end);
            found.push(FoundLog { dir: inner, flushed });
        }
    }
    Ok(found)
}

fn severity_text(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Rebuildable => "rebuildable",
        Severity::Damage => "damage",
    }
}

fn print_verdict(dir: &Path, verdict: &Verdict, output: &mut Output<'_>) -> Result<(), Failure> {
    let state = verdict.severity().map_or("sound", severity_text);
    output.line(&format!(
        "{}: {state}; offsets {} to {}, {} segments ({} sealed), {} batches, {} records, {} bytes",
        dir.display(),
        verdict.start,
        verdict.end,
        verdict.segments,
        verdict.sealed,
        verdict.batches,
        verdict.records,
        verdict.bytes
    ))?;
    print_findings(&verdict.findings, output)
}

/// Of the files beside the logs.
fn print_data_dir(dir: &Path, findings: &[Finding], output: &mut Output<'_>) -> Result<(), Failure> {
    let state = findings.iter().map(|finding| finding.severity).max().map_or("sound", severity_text);
    output.line(&format!("{}, beside the logs: {state}", dir.display()))?;
    print_findings(findings, output)
}

fn print_findings(findings: &[Finding], output: &mut Output<'_>) -> Result<(), Failure> {
    for finding in findings {
        let at = finding.position.map(|position| format!(", byte {position}")).unwrap_or_default();
        let (severity, path) = (severity_text(finding.severity), finding.path.display());
        output.line(&printable(&format!("  {severity}: {path}{at}: {}", finding.reason)))?;
    }
    Ok(())
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "severity": severity_text(finding.severity),
        "file": finding.path.display().to_string(),
        "position": finding.position,
        "reason": finding.reason,
    })
}

/// Of the files beside the logs.
fn data_dir_json(dir: &Path, findings: &[Finding]) -> Value {
    let state = findings.iter().map(|finding| finding.severity).max().map_or("sound", severity_text);
    json!({
        "data_directory": dir.display().to_string(),
        "state": state,
        "findings": findings.iter().map(finding_json).collect::<Vec<_>>(),
    })
}

fn verdict_json(dir: &Path, verdict: &Verdict) -> Value {
    json!({
        "directory": dir.display().to_string(),
        "state": verdict.severity().map_or("sound", severity_text),
        "start": verdict.start,
        "end": verdict.end,
        "segments": verdict.segments,
        "sealed": verdict.sealed,
        "batches": verdict.batches,
        "records": verdict.records,
        "bytes": verdict.bytes,
        "findings": verdict.findings.iter().map(finding_json).collect::<Vec<_>>(),
    })
}
