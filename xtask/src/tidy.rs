//! `cargo xtask tidy`: the rules of this source tree that no compiler checks. Each rule is a file with a pure function from
//! text to faults, and its tests.
//!
//! Rules: [`imports`] (who may import whom), [`purity`] (cores without I/O), [`names`] (no empty file names), [`size`]
//! (a ratchet on long files and functions), [`words`] (nothing unfinished, nothing of one machine), [`decisions`] (a reason
//! for each dependency).

mod decisions;
mod imports;
mod names;
mod purity;
mod size;
mod source;
mod words;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::shell::{self, Failure, cargo, program};
use source::SourceFile;

/// What is wrong, where, and what to do.
pub(crate) type Fault = String;

pub(crate) fn run(_args: &[String]) -> Result<(), Failure> {
    let root = shell::root();
    let packages = read_packages()?;
    let files = read_files(&root)?;
    let sources: Vec<SourceFile> = files
        .iter()
        .filter(|(path, _)| path.ends_with(".rs"))
        .map(|(path, text)| SourceFile::new(path, text))
        .collect();

    let mut faults = imports::check(&packages);
    for package in packages.iter().filter(|package| purity::is_pure(&package.name)) {
        faults.extend(purity::check_tree(&package.name, &dependency_names(&package.name)?));
        let inside = sources.iter().filter(|file| file.path.starts_with(&format!("{}/src/", package.folder)));
        faults.extend(inside.flat_map(purity::check_text));
    }
    faults.extend(sources.iter().filter_map(|file| names::check(&file.path)));
    faults.extend(size::check(&sources, &read_ratchet(&root)?));
    faults.extend(files.iter().flat_map(|(path, text)| words::check(path, text)));
    faults.extend(decisions::check(
        &read(&root.join("Cargo.toml"))?,
        &read(&root.join("docs/decisions/0002-dependencies.md"))?,
    )?);

    if faults.is_empty() {
        println!("tidy: {} packages, {} files, no fault", packages.len(), files.len());
        return Ok(());
    }
    faults.sort();
    Err(Failure(format!("{}\ntidy: {} faults", faults.join("\n"), faults.len())))
}

/// Writes smaller numbers into `xtask/ratchet.toml` where the code has shrunk.
pub(crate) fn lower_ratchets() -> Result<(), Failure> {
    let root = shell::root();
    let files = read_files(&root)?;
    let sources: Vec<SourceFile> = files
        .iter()
        .filter(|(path, _)| path.ends_with(".rs"))
        .map(|(path, text)| SourceFile::new(path, text))
        .collect();
    let path = root.join("xtask/ratchet.toml");
    let before = read(&path)?;
    let after = size::lowered(&before, &sources)?;
    if after != before {
        fs::write(&path, after).map_err(|error| Failure(format!("write {}: {error}", path.display())))?;
    }
    Ok(())
}

/// A package of this workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// Relative to the root.
    pub(crate) folder: String,
    /// Names of what it needs to be built (not: of its tests).
    pub(crate) dependencies: Vec<String>,
    /// Names of what only its tests need.
    pub(crate) dev_dependencies: Vec<String>,
}

fn read_packages() -> Result<Vec<Package>, Failure> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--no-deps"]);
    let metadata: Value = serde_json::from_str(&shell::output(command)?)
        .map_err(|error| Failure(format!("cargo metadata: {error}")))?;
    let root = metadata["workspace_root"].as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(packages.iter().map(|package| read_package(package, &root)).collect())
}

fn read_package(package: &Value, root: &str) -> Package {
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let folder = Path::new(manifest).parent().and_then(|folder| folder.strip_prefix(root).ok());
    let mut dependencies = Vec::new();
    let mut dev_dependencies = Vec::new();
    for dependency in package["dependencies"].as_array().map_or(&[][..], Vec::as_slice) {
        let name = dependency["name"].as_str().unwrap_or_default().to_owned();
        let list = if dependency["kind"].as_str() == Some("dev") {
            &mut dev_dependencies
        } else {
            &mut dependencies
        };
        list.push(name);
    }
    Package {
        name: package["name"].as_str().unwrap_or_default().to_owned(),
        folder: folder.map_or_else(String::new, |folder| folder.to_string_lossy().into_owned()),
        dependencies,
        dev_dependencies,
    }
}

/// All packages that `package` is built from, procedural macros (which run in the compiler) left out.
fn dependency_names(package: &str) -> Result<Vec<String>, Failure> {
    let mut command = cargo();
    command.args(["tree", "--package", package, "--edges", "normal,no-proc-macro", "--prefix", "none"]);
    command.args(["--format", "{p}"]);
    let text = shell::output(command)?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// All text files that are in git or could be added to it.
fn read_files(root: &Path) -> Result<Vec<(String, String)>, Failure> {
    let mut command = program("git");
    command.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let mut files = Vec::new();
    for path in shell::output(command)?.lines() {
        // A file that was deleted but not yet committed, or is not text, is nobody's fault.
        if let Ok(text) = fs::read_to_string(root.join(path)) {
            files.push((path.to_owned(), text));
        }
    }
    Ok(files)
}

fn read_ratchet(root: &Path) -> Result<size::Ratchet, Failure> {
    size::parse_ratchet(&read(&root.join("xtask/ratchet.toml"))?)
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure(format!("read {}: {error}", path.display())))
}
