//! Who may import whom. The table is the architecture; docs/decisions/0001-workspace-walls.md gives the reasons.

use super::{Fault, Package};

/// What a package may import of ours.
enum Allowed {
    These(&'static [&'static str]),
    Anything,
}
use Allowed::{Anything, These};

const TABLE: &[(&str, Allowed)] = &[
    ("proto-types", These(&[])),
    ("records", These(&[])),
    ("kafka-wire-derive", These(&[])),
    ("kafka-wire-core", These(&["kafka-wire-derive"])),
    ("xtask", These(&[])),
    ("telemetry", These(&[])),
    ("log-engine-core", These(&["records"])),
    ("log-engine", These(&["log-engine-core", "records"])),
    ("controller-core", These(&["proto-types"])),
    ("storage-node-core", These(&["proto-types", "log-engine-core"])),
    ("coordinator-core", These(&["proto-types", "records", "kafka-wire-core"])),
    ("quic-transport", These(&["proto-types"])),
    ("kafka-wire", These(&["kafka-wire-core"])),
    ("controller", These(&["controller-core", "proto-types", "quic-transport", "telemetry"])),
    (
        "coordinator",
        These(&[
            "coordinator-core",
            "proto-types",
            "records",
            "kafka-wire-core",
            "quic-transport",
            "telemetry",
        ]),
    ),
    (
        "storage-node",
        These(&[
            "storage-node-core",
            "proto-types",
            "records",
            "quic-transport",
            "kafka-wire",
            "kafka-wire-core",
            "log-engine",
            "log-engine-core",
            "telemetry",
        ]),
    ),
    (
        "admin-cli",
        These(&[
            "proto-types",
            "records",
            "kafka-wire",
            "kafka-wire-core",
            "quic-transport",
            "telemetry",
            "log-engine",
            "log-engine-core",
            "controller",
            "coordinator",
            "storage-node",
        ]),
    ),
    ("cluster-tests", Anything),
    ("cluster-sim", Anything),
    ("bench", Anything),
];

/// Crates of others that only some packages may name.
const RESERVED: &[(&str, &[&str])] = &[
    ("quinn", &["quic-transport"]),
    ("quinn-proto", &["quic-transport"]),
    ("openraft", &["controller"]),
    ("rdkafka", &["admin-cli", "bench", "cluster-tests"]),
    ("figment", &["controller", "coordinator", "storage-node", "admin-cli"]),
];

const DAEMONS: &[&str] = &["controller", "coordinator", "storage-node"];

pub(crate) fn check(packages: &[Package]) -> Vec<Fault> {
    let ours: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut faults = Vec::new();
    for package in packages {
        let name = package.name.as_str();
        let Some((_, allowed)) = TABLE.iter().find(|(known, _)| *known == name) else {
            faults.push(format!(
                "imports: package {name} is not in the table of xtask/src/tidy/imports.rs; add it there and to \
                 docs/decisions/0001-workspace-walls.md"
            ));
            continue;
        };
        for import in package.dependencies.iter().filter(|import| ours.contains(&import.as_str())) {
            let allowed = match allowed {
                Anything => true,
                These(list) => list.contains(&import.as_str()),
            };
            if !allowed {
                faults.push(format!(
                    "imports: {name} must not import {import} (docs/decisions/0001-workspace-walls.md)"
                ));
            }
        }
        faults.extend(check_reserved(package));
        faults.extend(check_daemon(package));
    }
    faults
}

fn check_reserved(package: &Package) -> Vec<Fault> {
    let reserved = RESERVED.iter().filter(|(import, by)| {
        package.dependencies.iter().any(|name| name == import) && !by.contains(&package.name.as_str())
    });
    reserved
        .map(|(import, by)| {
            format!("imports: {} must not name {import}; only {} may", package.name, by.join(", "))
        })
        .collect()
}

/// Daemons meet in messages only, in their tests as well.
fn check_daemon(package: &Package) -> Vec<Fault> {
    if !DAEMONS.contains(&package.name.as_str()) {
        return Vec::new();
    }
    let others = package.dev_dependencies.iter().filter(|name| {
        DAEMONS.contains(&name.trim_end_matches("-core")) && name.trim_end_matches("-core") != package.name
    });
    others.map(|other| format!("imports: the tests of {} must not import {other}", package.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str], dev: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            folder: name.to_owned(),
            dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
            dev_dependencies: dev.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn faults_of(package_under_test: Package) -> usize {
        let others = TABLE.iter().filter(|(name, _)| *name != package_under_test.name);
        let mut packages: Vec<Package> = others.map(|(name, _)| package(name, &[], &[])).collect();
        packages.push(package_under_test);
        check(&packages).len()
    }

    #[test]
    fn the_table_is_enforced() {
        assert_eq!(
            faults_of(package("storage-node-core", &["proto-types", "log-engine-core", "bytes"], &[])),
            0
        );
        assert_eq!(faults_of(package("storage-node-core", &["log-engine"], &[])), 1);
        assert_eq!(faults_of(package("records", &["proto-types"], &[])), 1);
        assert_eq!(faults_of(package("cluster-tests", &["controller", "storage-node", "rdkafka"], &[])), 0);
        assert_eq!(faults_of(package("newcomer", &[], &[])), 1);
    }

    #[test]
    fn daemons_never_import_each_other() {
        assert_eq!(faults_of(package("storage-node", &["controller"], &[])), 1);
        assert_eq!(faults_of(package("storage-node", &[], &["controller-core"])), 1);
        assert_eq!(faults_of(package("storage-node", &[], &["storage-node-core"])), 0);
    }

    #[test]
    fn reserved_crates_have_one_home() {
        assert_eq!(faults_of(package("controller", &["openraft"], &[])), 0);
        assert_eq!(faults_of(package("controller", &["quinn"], &[])), 1);
        assert_eq!(faults_of(package("storage-node", &["rdkafka"], &[])), 1);
    }
}
