//! Kafka's rule for topic names, for answers about topics that do not exist. Creating one is the controller's decision.

/// Longest topic name, bytes.
/// Bytes of a name at most.
pub const LENGTH_MAX: usize = 249;

/// Checks that a topic could have this name. The error is a sentence as Kafka has it, safe to be shown.
pub fn check(name: &str) -> Result<(), String> {
    let problem = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if matches!(name, "." | "..") {
        format!("'{name}' is not allowed")
    } else if name.len() > LENGTH_MAX {
        format!("its length is longer than the max allowed length {LENGTH_MAX}")
    } else if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        format!(
            "'{}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
            name.escape_debug()
        )
    } else {
        return Ok(());
    };
    Err(format!("Topic name is invalid: {problem}"))
}

/// Whether a topic could have this name.
pub fn is_valid(name: &str) -> bool {
    check(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_rule() {
        for good in ["a", "ad-events", "A.b_c-9", "...", "__mine", &"x".repeat(249)] {
            assert!(is_valid(good), "{good}");
        }
        for bad in ["", ".", "..", "a b", "ü", "a/b", "a\n", "a\0", &"x".repeat(250)] {
            assert!(!is_valid(bad), "{bad}");
        }
    }
}
