//! File names that say nothing: such a file collects what has no home until nobody can read it.

use super::Fault;

const EMPTY: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "manager", "impls", "types"];

/// Looks at the file's own name and at the folders above it.
pub(crate) fn check(path: &str) -> Option<Fault> {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let empty = stem.split('/').find(|part| EMPTY.contains(part))?;
    Some(format!("names: {path}: `{empty}` says nothing; name it after what it holds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_are_found() {
        assert!(check("log-engine/src/utils.rs").is_some());
        assert!(check("log-engine/tests/common/mod.rs").is_some());
        assert!(check("proto-types/src/ids.rs").is_none());
        assert!(check("controller/src/quorum/type_config.rs").is_none());
    }
}
