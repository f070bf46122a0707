//! The integration tests of kafka-python, from its source package: the client in Python alone, strong on administration.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::suite::{LIMIT, Outcome, Prepared, Suite};
use super::{installed, kafka_version};
use crate::shell::{self, Failure, program};
use crate::subject::Shape;

pub(super) const SUITE: Suite = Suite {
    name: "kafka-python",
    shape: Shape {
        nodes: 1,
        port: None,
        racks: &[],
        // A test has members with sessions of 3 s, to be done sooner.
        configs: &[("num.partitions", "4"), ("group.min.session.timeout.ms", "3000")],
        of_kafka: &[],
    },
    at_once: 2,
    limit: LIMIT,
    prepare,
    command: |test, bootstrap| {
        let mut command = pytest(bootstrap)?;
        command.args(["-q", "-rs", "--tb=short", &format!("test/integration/{test}")]);
        Ok(command)
    },
    judge: |_test, success, output| {
        let says =
            |result: &str| output.lines().any(|line| line.trim_matches('=').trim().starts_with(result));
        if success && says("1 skipped") {
            return Outcome::skipped(output, "SKIPPED [", ": ");
        }
        Outcome::by_exit(success && says("1 passed"), output, &["E   "])
    },
};

/// A test puts replicas on the node 0, which there is only where a cluster was made by hand.
const CHANGES: &[(&str, &str)] = &[("[[0], [0]]", "[[1], [1]]")];

fn dir() -> PathBuf {
    installed().join("kafka-python")
}

fn of_ours(name: &str) -> PathBuf {
    shell::root().join("cluster-tests/conformance/kafka-python").join(name)
}

fn prepare(offline: bool) -> Result<Prepared, Failure> {
    let pins = of_ours("requirements.txt");
    let wanted = fs::read(&pins).map_err(|error| Failure(format!("read {}: {error}", pins.display())))?;
    let how = "run `cargo xtask conformance kafka-python --install-only`";
    let text = String::from_utf8_lossy(&wanted);
    let wanted = super::stamp(&text, CHANGES);
    shell::once("kafka-python's tests", &wanted, &dir(), offline.then_some(how), fetch)?;
    let version = text.lines().find_map(|line| line.strip_prefix("kafka-python==")).unwrap_or_default();
    let mut collect = pytest("127.0.0.1:1")?;
    collect.args(["-q", "--collect-only", "--disable-warnings", "test/integration"]);
    let listed = shell::output(collect)?;
    let tests = listed.lines().filter_map(|line| line.strip_prefix("test/integration/"));
    Ok(Prepared { version: version.to_owned(), tests: tests.map(str::to_owned).collect() })
}

fn fetch() -> Result<(), Failure> {
    let pins = of_ours("requirements.txt");
    let mut venv = program("python3");
    venv.args(["-m", "venv"]).arg(dir().join("venv"));
    shell::run(venv)?;
    let pip = || program(&dir().join("venv/bin/pip").to_string_lossy());
    let mut install = pip();
    install.args(["install", "--quiet", "--only-binary", ":all:", "--requirement"]).arg(&pins);
    shell::run(install)?;
    let mut download = pip();
    download.args(["download", "--quiet", "--no-deps", "--no-binary", "kafka-python", "kafka-python"]);
    download.arg("--constraint").arg(&pins).arg("--dest").arg(dir());
    shell::run(download)?;
    let source = dir().join("source");
    let unpack = |archive: PathBuf| {
        let mut tar = program("tar");
        tar.args(["--strip-components=1", "-xzf"]).arg(archive).arg("-C").arg(&source);
        shell::run(tar)
    };
    let archives = fs::create_dir_all(&source).and_then(|()| fs::read_dir(dir())).and_then(|entries| {
        let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
        Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "gz")))
    });
    archives.map_err(|error| Failure(format!("read {}: {error}", dir().display())))?.try_for_each(unpack)?;
    // What the source package leaves out.
    let test = source.join("test");
    super::replace(&test, "py", CHANGES)?;
    fs::write(test.join("__init__.py"), "")
        .and_then(|()| fs::copy(of_ours("service.py"), test.join("service.py")))
        .map(drop)
        .map_err(|error| Failure(format!("write into {}: {error}", test.display())))
}

fn pytest(bootstrap: &str) -> Result<Command, Failure> {
    let mut command = program(&dir().join("venv/bin/python").to_string_lossy());
    command.args(["-m", "pytest", "-p", "no:cacheprovider"]).current_dir(dir().join("source"));
    command.env("KAFKA_URI", format!("kafka://{bootstrap}")).env("KAFKA_ROOT", ".");
    command.env("KAFKA_VERSION", kafka_version()?).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}
