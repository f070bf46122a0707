//! How fast `weir dev` answers on an empty directory, and what it needs when nobody asks anything.

use crate::cpu::{resident_mib, threads};
use crate::report::{print_table, spread};
use crate::weir::Weir;
use crate::{Failure, clock};
use std::time::Duration;

/// Options of `bench startup`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many starts.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Seconds of idleness before memory is read.
    #[arg(long, default_value_t = 3)]
    idle_seconds: u64,
}

/// Runs the measurement and prints a table.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (mut ready, mut again, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let mut thread_count = 0;
    for _ in 0..args.rounds {
        let home = tempfile::tempdir()?;
        ready.push(start_once(home.path(), |_| Ok(()))?);
        again.push(start_once(home.path(), |weir| {
            std::thread::sleep(Duration::from_secs(args.idle_seconds));
            memory.push(resident_mib(weir.id())?);
            thread_count = threads(weir.id())?;
            Ok(())
        })?);
    }
    print_table(&[
        vec!["weir dev".to_owned(), "median (min-max)".to_owned()],
        vec!["first start to first answer, s".to_owned(), spread(&ready, 3)],
        vec!["second start to first answer, s".to_owned(), spread(&again, 3)],
        vec!["resident when idle, MiB".to_owned(), spread(&memory, 1)],
        vec!["threads".to_owned(), thread_count.to_string()],
    ]);
    Ok(())
}

fn start_once(
    home: &std::path::Path,
    mut then: impl FnMut(&Weir) -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let start = clock::now();
    let mut weir = Weir::start(home)?;
    weir.wait_ready()?;
    let seconds = start.elapsed().as_secs_f64();
    then(&weir)?;
    weir.stop()?;
    Ok(seconds)
}
