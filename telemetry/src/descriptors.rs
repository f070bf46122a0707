//! The limit of open descriptors of the process: shells give 1024, a node with many partitions and clients needs more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open descriptors to the hard one, and returns what is then allowed (none: no limit). A process
/// may always do so; if the system refuses all the same, the old limit stays and is returned.
pub fn raise_descriptor_limit() -> Option<u64> {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => before.maximum,
        Err(error) => {
            tracing::warn!(%error, limit = ?before.current, "raise the limit of open descriptors");
            before.current
        }
    }
}

/// How many descriptors the process may have open (none: no limit).
pub fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let hard = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(100), maximum: hard }).unwrap();
        assert_eq!(raise_descriptor_limit(), hard);
        assert_eq!(descriptor_limit(), hard);
    }
}
