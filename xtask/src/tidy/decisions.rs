//! Each dependency on others' code has a line of reasons in docs/decisions/0002-dependencies.md.

use super::Fault;
use crate::shell::Failure;

/// `manifest` is the root Cargo.toml, `table` the file with one `| `name` | why |` row for each dependency.
pub(crate) fn check(manifest: &str, table: &str) -> Result<Vec<Fault>, Failure> {
    let manifest: toml::Table = manifest.parse().map_err(|error| Failure(format!("Cargo.toml: {error}")))?;
    let dependencies = manifest.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let dependencies = dependencies.and_then(toml::Value::as_table).cloned().unwrap_or_default();
    let foreign: Vec<&String> =
        dependencies.iter().filter(|(_, value)| value.get("path").is_none()).map(|(name, _)| name).collect();
    let explained: Vec<&str> = table.lines().filter_map(explained_name).collect();

    let mut faults = Vec::new();
    for name in &foreign {
        if !explained.contains(&name.as_str()) {
            faults
                .push(format!("decisions: say in docs/decisions/0002-dependencies.md why `{name}` is used"));
        }
    }
    for name in explained {
        if !foreign.iter().any(|foreign| *foreign == name) {
            faults.push(format!(
                "decisions: docs/decisions/0002-dependencies.md explains `{name}`, which is not used"
            ));
        }
    }
    Ok(faults)
}

fn explained_name(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_and_reasons_match() {
        let manifest = "[workspace.dependencies]\nrecords = { path = \"records\" }\nbytes = \"1\"\nuuid = { version = \"1\" }\n";
        let table = "| crate | why |\n|---|---|\n| `bytes` | shared slices |\n| `uuid` | ids |\n";
        assert!(check(manifest, table).expect("readable").is_empty());
        let table = "| `bytes` | shared slices |\n| `gone` | it was nice |\n";
        assert_eq!(check(manifest, table).expect("readable").len(), 2);
    }
}
