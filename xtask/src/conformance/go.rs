//! Suites of Go modules: the module's copy in Go's cache is copied, and its tests are built into one program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::installed;
use super::suite::Outcome;
use crate::shell::{self, Failure, program};

/// A module whose tests are a suite.
pub(super) struct Module {
    /// The folder in `target/conformance`.
    pub(super) name: &'static str,
    /// The module's path; its version is that of the client table.
    pub(super) path: &'static str,
    /// The folder of the tested package in the module.
    pub(super) package: &'static str,
    /// More arguments of `go test`.
    pub(super) build_args: &'static [&'static str],
    /// What stands in the sources of the cluster, addresses above all, and what stands there instead.
    pub(super) changes: &'static [(&'static str, &'static str)],
    /// Adds something of ours to the copied sources before they are built.
    pub(super) added: fn(source: &Path) -> Result<(), Failure>,
    /// How the names of the files with tests begin.
    pub(super) files: &'static str,
}

impl Module {
    /// Fetches and builds if that was not done; gives the version.
    pub(super) fn prepare(&self, offline: bool) -> Result<String, Failure> {
        let (cached, version) = self.fetch(offline)?;
        let how = format!("run `cargo xtask conformance {} --install-only`", self.name);
        let what = format!("the tests of {}", self.name);
        let wanted = super::stamp(&version, self.changes);
        shell::once(&what, &wanted, &self.dir(), offline.then_some(&how), || self.build(&cached))?;
        Ok(version)
    }

    fn dir(&self) -> PathBuf {
        installed().join(self.name)
    }

    fn package_dir(&self) -> PathBuf {
        self.dir().join("source").join(self.package)
    }

    /// The module in Go's cache, and its version without the `v`.
    fn fetch(&self, offline: bool) -> Result<(PathBuf, String), Failure> {
        let mut list = program("go");
        list.args(["mod", "download", "-json", self.path]);
        list.current_dir(shell::root().join("cluster-tests/clients/go"));
        if offline {
            list.env("GOPROXY", "off");
        }
        let module: serde_json::Value = serde_json::from_str(&shell::output(list)?)
            .map_err(|error| Failure(format!("read what go mod download prints: {error}")))?;
        match (module["Dir"].as_str(), module["Version"].as_str()) {
            (Some(dir), Some(version)) => {
                Ok((PathBuf::from(dir), version.trim_start_matches('v').to_owned()))
            }
            _ => Err(Failure(format!("go does not know the module {}: {}", self.path, module["Error"]))),
        }
    }

    fn build(&self, cached: &Path) -> Result<(), Failure> {
        let source = self.dir().join("source");
        let mut copy = program("cp");
        copy.args(["-r", "--no-preserve=mode"]).arg(cached).arg(&source);
        shell::run(copy)?;
        if !self.changes.is_empty() {
            super::replace(&source, "go", self.changes)?;
        }
        (self.added)(&source)?;
        let mut build = program("go");
        build.args(["test", "-mod=mod", "-c", "-o"]).arg(self.dir().join("tests"));
        build.args(self.build_args).arg(".").current_dir(self.package_dir());
        shell::run(build)
    }

    /// The names of the test functions of the package that contain one of these words; of all if there are none.
    pub(super) fn tests(&self, words: &[&str]) -> Result<Vec<String>, Failure> {
        let dir = self.package_dir();
        let read = || -> std::io::Result<Vec<String>> {
            let mut tests = Vec::new();
            for entry in fs::read_dir(&dir)? {
                let path = entry?.path();
                let name =
                    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                if name.starts_with(self.files) && name.ends_with("_test.go") {
                    tests.extend(test_functions(&fs::read_to_string(&path)?, words));
                }
            }
            tests.sort();
            Ok(tests)
        };
        read().map_err(|error| Failure(format!("read the tests in {}: {error}", dir.display())))
    }

    /// The process of one test function.
    pub(super) fn command(&self, test: &str) -> Command {
        let mut command = program(&self.dir().join("tests").to_string_lossy());
        command.current_dir(self.package_dir());
        command.args(["-test.v", "-test.count=1", "-test.run", &format!("^{test}$")]);
        command
    }
}

fn test_functions(text: &str, words: &[&str]) -> Vec<String> {
    let mut tests = Vec::new();
    for function in text.split("\nfunc Test").skip(1) {
        let body = function.split_once("\n}").map_or(function, |(body, _)| body);
        let Some((name, rest)) = body.split_once('(') else { continue };
        let is_test = name != "Main" && rest.lines().next().is_some_and(|line| line.contains("*testing.T)"));
        if is_test && (words.is_empty() || words.iter().any(|word| rest.contains(word))) {
            tests.push(format!("Test{name}"));
        }
    }
    tests
}

/// Reads what `-test.v` prints of a test.
pub(super) fn judge(test: &str, success: bool, output: &str) -> Outcome {
    if success && output.contains(&format!("--- SKIP: {test} ")) {
        return Outcome::skipped(output, "_test.go:", ": ");
    }
    if success && !output.contains(&format!("--- PASS: {test} ")) {
        return Outcome::Failed("it was not run".to_owned());
    }
    Outcome::by_exit(success, output, &["_test.go:", "panic:"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_functions_are_found() {
        let text = "\nfunc TestMain(m *testing.M) {\n}\nfunc TestA(t *testing.T) {\n\tdial(1)\n}\nfunc help() {\n\tdial(2)\n}\n\
                    func TestB(t *testing.T) {\n}\nfunc Testing() {\n}";
        assert_eq!(test_functions(text, &[]), ["TestA", "TestB"]);
        assert_eq!(test_functions(text, &["dial"]), ["TestA"]);
    }

    #[test]
    fn what_go_prints_is_read() {
        assert_eq!(judge("TestA", true, "--- PASS: TestA (0.1s)\nPASS\n"), Outcome::Passed);
        let skipped = judge("TestA", true, "    x_test.go:1: no\n--- SKIP: TestA (0.1s)\n");
        assert_eq!(skipped, Outcome::Skipped("no".to_owned()));
        assert!(matches!(judge("TestA", true, "no tests to run"), Outcome::Failed(_)));
        let failed = judge("TestA", false, "    x_test.go:9: broken\n--- FAIL: TestA (0.1s)\nFAIL\n");
        assert_eq!(failed, Outcome::Failed("x_test.go:9: broken".to_owned()));
    }
}
