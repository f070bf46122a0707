//! Kafka's rules for topic names, and the names that are closed to clients.

use proto_types::error::{Reason, Rejection};

/// Longest topic name, characters: directory names with a partition number must fit into 255 bytes.
pub const LENGTH_MAX: usize = 249;

/// The internal topics. Only the cluster itself creates, changes and writes them.
pub const CLOSED: [&str; 2] = ["__consumer_offsets", "__transaction_state"];

/// Checks a name that a client wants to give to a topic.
pub fn check(name: &str) -> Result<(), Rejection> {
    let problem = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        format!("'{name}' is not allowed")
    } else if name.chars().count() > LENGTH_MAX {
        format!("the length of '{}...' is longer than the max allowed length {LENGTH_MAX}", start_of(name))
    } else if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')) {
        format!(
            "'{}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
            name.escape_debug()
        )
    } else {
        return Ok(());
    };
    Err(Rejection { reason: Reason::InvalidTopicName, message: format!("Topic name is invalid: {problem}") })
}

/// Refuses the internal topics.
pub fn check_open(name: &str) -> Result<(), Rejection> {
    if !CLOSED.contains(&name) {
        return Ok(());
    }
    let message =
        format!("Topic '{name}' is internal to the cluster; clients cannot create, change or delete it.");
    Err(Rejection { reason: Reason::ClosedTopic, message })
}

/// What a name looks like in metric names, where `.` becomes `_`. Two topics with the same one collide.
pub fn collision_key(name: &str) -> String {
    name.replace('.', "_")
}

fn start_of(name: &str) -> String {
    name.chars().take(40).collect::<String>().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_rules() {
        for good in ["a", "ad-events", "A.b_c-9", "...", "__mine", &"x".repeat(249)] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let cases = [
            ("", "the empty string"),
            (".", "'.' is not allowed"),
            ("..", "'..' is not allowed"),
            (&"x".repeat(250), "longer than the max allowed length 249"),
            ("a b", "characters other than"),
            ("ü", "characters other than"),
            ("a/b", "characters other than"),
            ("a\nb", "'a\\nb' contains"),
        ];
        for (bad, expected) in cases {
            let rejection = check(bad).expect_err(bad);
            assert_eq!(rejection.reason, Reason::InvalidTopicName);
            assert!(rejection.message.starts_with("Topic name is invalid: "), "{}", rejection.message);
            assert!(rejection.message.contains(expected), "{}", rejection.message);
        }
    }

    #[test]
    fn only_our_own_internal_topics_are_closed() {
        assert!(check_open("__consumer_offsets").is_err());
        assert!(check_open("__transaction_state").is_err());
        assert!(check_open("__other").is_ok());
    }
}
