//! Runs the tests of a suite, each in a process of its own with a limit of time; what fails unexpectedly is run once more,
//! alone.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::thread;

use super::suite::{Outcome, Suite};
use crate::clock::Stopwatch;
use crate::shell::{self, Failure};
use crate::subject::{nodes, nodes_in};

/// A test that was run.
#[derive(Clone, Debug)]
pub(super) struct TestResult {
    pub(super) test: String,
    pub(super) outcome: Outcome,
    /// How long it took, the last time.
    pub(super) seconds: f64,
}

/// Runs the tests in their order, as many at once as the suite allows, then those that failed one by one, unless the lists
/// know that they fail.
pub(super) fn run(
    suite: &Suite,
    tests: &[String],
    bootstrap: &str,
    dir: &Path,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<Vec<TestResult>, Failure> {
    let next = Mutex::new(tests.iter());
    let results = Mutex::new(Vec::new());
    let work = || -> Result<(), Failure> {
        loop {
            let test = next.lock().expect("nobody panics with it").next();
            let Some(test) = test else { return Ok(()) };
            let result = run_one(suite, test, bootstrap, dir)?;
            say(&result);
            results.lock().expect("nobody panics with it").push(result);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..suite.at_once).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let mut results = results.into_inner().expect("nobody panics with it");
    for result in &mut results {
        if matches!(result.outcome, Outcome::Failed(_)) && !is_known(&result.test) {
            println!("once more:");
            *result = run_one(suite, &result.test, bootstrap, dir)?;
            say(result);
        }
    }
    results.sort_by(|a, b| a.test.cmp(&b.test));
    Ok(results)
}

fn say(result: &TestResult) {
    let (test, seconds) = (&result.test, result.seconds);
    match &result.outcome {
        Outcome::Passed => println!("  passed  {test} ({seconds:.1} s)"),
        Outcome::Skipped(why) => println!("  skipped {test} ({seconds:.1} s): {why}"),
        Outcome::Failed(why) => println!("  FAILED  {test} ({seconds:.1} s): {why}"),
    }
}

fn run_one(suite: &Suite, test: &str, bootstrap: &str, dir: &Path) -> Result<TestResult, Failure> {
    let watch = Stopwatch::start();
    let log = dir.join(format!("{}.log", test.replace(['/', ':'], "_")));
    let output = shell::create(&log)?;
    let errors = output.try_clone().map_err(|error| Failure(format!("open {}: {error}", log.display())))?;
    let mut command = (suite.command)(test, bootstrap)?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    command.env(nodes::FOLDER, nodes_in(dir));
    // A group of its own, so that the programs that it starts end with it.
    command.process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| Failure(format!("cannot start {}: {error}", shell::line(&command))))?;
    let status = shell::wait_at_most(&mut child, suite.limit)?;
    let bytes = fs::read(&log).map_err(|error| Failure(format!("read {}: {error}", log.display())))?;
    let text = String::from_utf8_lossy(&bytes);
    let outcome = match status {
        Some(status) => (suite.judge)(test, status.success(), &text),
        None => Outcome::Failed(format!("it did not end within {} s", suite.limit.as_secs())),
    };
    Ok(TestResult { test: test.to_owned(), outcome, seconds: watch.elapsed().as_secs_f64() })
}
