//! Text that must not be committed: unfinished work, tests that do not run, paths of one machine.

use super::Fault;

/// (what to find, why it may not stay)
const FORBIDDEN: &[(&str, &str)] = &[
    ("todo!(", "unfinished: finish it or leave it out"),
    ("unimplemented!(", "unfinished: finish it or leave it out"),
    ("FIXME", "unfinished: fix it or file an issue"),
    ("XXX:", "unfinished: fix it or file an issue"),
    ("#[ignore", "a test that does not run proves nothing"),
    ("/root/", "a path of one machine"),
    ("/home/", "a path of one machine"),
    ("/work/", "a path of one machine"),
    ("/Users/", "a path of one machine"),
];

/// This file must write the words down, and the license is not ours to change.
const EXCEPT: &[&str] = &["xtask/src/tidy/words.rs", "LICENSE", "Cargo.lock"];

pub(crate) fn check(path: &str, text: &str) -> Vec<Fault> {
    if EXCEPT.contains(&path) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for (word, reason) in FORBIDDEN {
            if line.contains(word) {
                faults.push(format!("words: {path}:{number}: `{word}`: {reason}"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_words_are_found_with_their_line() {
        let faults = check("a/src/b.rs", "fn f() {\n    todo!()\n}\n");
        assert_eq!(faults, ["words: a/src/b.rs:2: `todo!(`: unfinished: finish it or leave it out"]);
        assert!(check("a/src/b.rs", "/// The homework is done.\n").is_empty());
    }
}
