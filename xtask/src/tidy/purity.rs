//! Cores decide and never act: no runtime, no files, no sockets, no clock, no threads, no global randomness.

use super::Fault;
use super::source::SourceFile;

/// Crates that do I/O or run tasks; a core may not even reach them.
const IMPURE_CRATES: &[&str] = &["tokio", "quinn", "openraft", "mio", "socket2", "rustix", "rdkafka"];

/// Text that acts or asks the outside world. (Plain address types are in `core::net`.)
const IMPURE_TEXT: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "std::env",
    "std::io::stdin",
    "SystemTime::now",
    "Instant::now",
    "rand::rng",
    "thread_rng",
    "new_v4",
    "async fn",
];

/// Whether the package is one of those that decide only.
pub(crate) fn is_pure(package: &str) -> bool {
    package.ends_with("-core") || ["proto-types", "records"].contains(&package)
}

/// `reached` is all that the package is built from.
pub(crate) fn check_tree(package: &str, reached: &[String]) -> Vec<Fault> {
    let impure = IMPURE_CRATES.iter().filter(|name| reached.iter().any(|reached| reached == *name));
    impure
        .map(|name| {
            format!("purity: {package} reaches {name}; see `cargo tree -p {package} -e normal -i {name}`")
        })
        .collect()
}

/// Looks at the code of a file without its comments, strings and tests.
pub(crate) fn check_text(file: &SourceFile) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (number, line) in file.product_lines() {
        for text in IMPURE_TEXT {
            if line.contains(text) {
                faults.push(format!(
                    "purity: {}:{number}: `{text}` in a core; take it as an argument",
                    file.path
                ));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_reach_no_runtime() {
        let reached = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert!(check_tree("x-core", &reached(&["bytes", "serde"])).is_empty());
        assert_eq!(check_tree("x-core", &reached(&["bytes", "mio", "tokio"])).len(), 2);
        assert!(is_pure("controller-core") && is_pure("records") && !is_pure("controller"));
    }

    #[test]
    fn cores_ask_for_nothing() {
        let text = "use core::net::IpAddr;\n// std::fs in a comment\nlet s = \"std::net\";\n";
        assert!(check_text(&SourceFile::new("x/core/src/a.rs", text)).is_empty());
        let text = "fn f() {\n    let t = std::time::Instant::now();\n}\n";
        let faults = check_text(&SourceFile::new("x/core/src/a.rs", text));
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("x/core/src/a.rs:2"), "{faults:?}");
        let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::thread;\n}\n";
        assert!(check_text(&SourceFile::new("x/core/src/a.rs", text)).is_empty());
    }
}
