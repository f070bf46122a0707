//! `weir-fsck`: looks at the data directories of a whole cluster after all its daemons have ended, and says what does not fit.

#![expect(clippy::print_stdout, reason = "a program for people prints")]

use std::path::PathBuf;
use std::process::ExitCode;

use cluster_tests::checker;
use cluster_tests::fsck::{self, Options};
use cluster_tests::history::History;

const USAGE: &str = "\
usage: weir-fsck [--controller DIR]... [--node ID=DIR]... [--topic NAME [--history DIR]]

Every directory is the data directory of a daemon, and no daemon may be running. With --topic, all copies of that topic must be
equal to the end; with --history, every record of it that was acknowledged must be in them, and the history itself is judged.";

fn main() -> ExitCode {
    let Some((options, history)) = options(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&options, history) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weir-fsck: {error}");
            ExitCode::from(2)
        }
    }
}

fn options(mut args: impl Iterator<Item = String>) -> Option<(Options, Option<PathBuf>)> {
    let (mut options, mut history) = (Options::default(), None);
    while let Some(arg) = args.next() {
        let value = args.next()?;
        match arg.as_str() {
            "--controller" => options.controllers.push(value.into()),
            "--node" => {
                let (id, dir) = value.split_once('=')?;
                options.nodes.insert(id.parse().ok()?, dir.into());
            }
            "--topic" => options.topic = Some(value),
            "--history" => history = Some(value.into()),
            _ => return None,
        }
    }
    let something = !options.controllers.is_empty() || !options.nodes.is_empty();
    (something && (history.is_none() || options.topic.is_some())).then_some((options, history))
}

fn run(options: &Options, history: Option<PathBuf>) -> Result<bool, Box<dyn std::error::Error>> {
    let history = history.map(|dir| History::read_dir(&dir)).transpose()?;
    let findings = fsck::check(options, history.as_ref())?;
    println!("{findings}");
    let report = history.as_ref().map(checker::check);
    if let Some(report) = &report {
        println!("{report}");
    }
    Ok(findings.is_clean() && report.is_none_or(|report| report.is_clean()))
}
