//! How the descriptors that the system allows the process are divided: a log that finds none left when it begins a segment
//! takes no more appends, so neither clients nor files may use up the other's.

use crate::config::Config;

/// At most so many of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescriptorShares {
    /// Connections of Kafka clients.
    pub(crate) connections_max: usize,
    /// Files that the logs of one data directory keep open.
    pub(crate) files_per_directory_max: usize,
}

impl DescriptorShares {
    /// What the configuration wants, as far as the process may have it.
    pub(crate) fn of(config: &Config) -> Self {
        let wanted = Self {
            connections_max: config.wire_limits().connections_max,
            files_per_directory_max: config.limits.descriptors_per_directory_max,
        };
        let limit = telemetry::descriptor_limit();
        let shares = wanted.within(limit, config.data_dirs.len());
        if shares != wanted {
            let Self { connections_max, files_per_directory_max } = shares;
            tracing::info!(
                limit,
                connections_max,
                files_per_directory_max,
                "the system's limit of open descriptors allows fewer than the configuration; raise it (ulimit -n) for more"
            );
        }
        shares
    }

    /// Clients get half of the limit at most. Of the rest files get three quarters: some stay for the connections of daemons, and
    /// for files that are opened in passing.
    fn within(self, limit: Option<u64>, directories: usize) -> Self {
        let Some(limit) = limit else { return self };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let connections_max = self.connections_max.min(limit / 2);
        let files = (limit - connections_max) / 4 * 3;
        let files_per_directory_max = self.files_per_directory_max.min(files / directories.max(1)).max(1);
        Self { connections_max, files_per_directory_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(connections_max: usize, files_per_directory_max: usize) -> DescriptorShares {
        DescriptorShares { connections_max, files_per_directory_max }
    }

    #[test]
    fn what_is_wanted_is_had_if_the_system_allows_it() {
        let wanted = shares(10_000, 20_000);
        assert_eq!(wanted.within(None, 1), wanted);
        assert_eq!(wanted.within(Some(1 << 20), 4), wanted);
        assert_eq!(wanted.within(Some(u64::MAX), 1), wanted);
    }

    #[test]
    fn clients_and_all_directories_together_leave_some() {
        for (limit, directories) in [(20_000u64, 1), (20_000, 3), (1_024, 2), (64, 5)] {
            let within = shares(usize::MAX, 20_000).within(Some(limit), directories);
            let used = within.connections_max + directories * within.files_per_directory_max;
            assert!(used as u64 <= limit * 7 / 8, "{within:?} of {limit}");
            assert!(
                within.files_per_directory_max > 0 && within.connections_max > 0,
                "{within:?} of {limit}"
            );
        }
    }

    #[test]
    fn what_clients_may_not_have_is_for_files() {
        assert_eq!(shares(100, 20_000).within(Some(20_100), 1), shares(100, 15_000));
    }
}
