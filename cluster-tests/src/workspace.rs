//! Where things are in the source tree: the root, the built programs, and the folders under `target/` that commands fill.

use std::path::{Path, PathBuf};

/// The root of the source tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the package lies one folder below the root").to_path_buf()
}

/// What `cargo xtask kafka-jars` fills: Kafka's jars and message descriptions. Independent of `CARGO_TARGET_DIR`.
pub fn kafka_dir() -> PathBuf {
    root().join("target/kafka")
}

/// The file of departures that `cargo xtask flights` makes: one JSON object a line.
pub fn flights_file() -> PathBuf {
    root().join("target/flights/flights.jsonl")
}

/// Folder of logs of test runs; a run that fails leaves its logs there.
pub fn logs_dir() -> PathBuf {
    root().join("target/cluster-tests")
}

/// The built program `name`: in `WEIR_BIN_DIR` if set (`cargo xtask test` sets it), else beside the folder of the running
/// test executable, where a plain `cargo build` of the same profile puts it.
pub fn program(name: &str) -> PathBuf {
    let dir = match std::env::var_os("WEIR_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            let me = std::env::current_exe().expect("the path of the running test is known");
            let deps = me.parent().expect("a program lies in a folder");
            if deps.ends_with("deps") {
                deps.parent().unwrap_or(deps).to_path_buf()
            } else {
                deps.to_path_buf()
            }
        }
    };
    let path = dir.join(name);
    assert!(
        path.is_file(),
        "{} is not built: run `cargo build --workspace --bins` or `cargo xtask test`",
        path.display()
    );
    path
}
