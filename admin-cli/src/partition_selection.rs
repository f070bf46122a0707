//! Partitions as they are named on the command line, `TOPIC` or `TOPIC:0,2`, and lists of nodes.

use std::collections::BTreeSet;

use crate::cluster_view::{PartitionView, TopicView};
use crate::failure::Failure;
use crate::output::printable;

/// A topic, or some of its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionSelection {
    pub(crate) topic: String,
    /// None for all.
    pub(crate) partitions: Option<BTreeSet<i32>>,
}

impl std::str::FromStr for PartitionSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (topic, partitions) = match text.split_once(':') {
            Some((topic, list)) => {
                let number = |part: &str| {
                    let number = part.trim().parse().ok().filter(|number: &i32| *number >= 0);
                    number.ok_or_else(|| format!("{part:?} is no partition; write TOPIC or TOPIC:0,1,2"))
                };
                (topic, Some(list.split(',').map(number).collect::<Result<_, _>>()?))
            }
            None => (text, None),
        };
        if topic.is_empty() {
            return Err(format!("{text:?} names no topic"));
        }
        Ok(Self { topic: topic.to_owned(), partitions })
    }
}

impl PartitionSelection {
    /// Whether it names this partition.
    pub(crate) fn includes(&self, topic: &str, partition: i32) -> bool {
        self.topic == topic && self.partitions.as_ref().is_none_or(|list| list.contains(&partition))
    }
}

/// The partitions that `selections` name among `topics`, each once, in order; one that does not exist is a failure.
pub(crate) fn select<'a>(
    topics: &'a [TopicView],
    selections: &[PartitionSelection],
) -> Result<Vec<(&'a TopicView, &'a PartitionView)>, Failure> {
    for selection in selections {
        let found = topics.iter().find(|topic| topic.name == selection.topic);
        let missing = selection.partitions.iter().flatten().find(|index| {
            found.is_none_or(|topic| topic.partitions.iter().all(|partition| partition.index != **index))
        });
        if let Some(index) = missing {
            let name = printable(&selection.topic);
            return Err(Failure::not_found(format!("topic {name} has no partition {index}"))
                .hint(format!("`weir topic describe {name}` shows its partitions")));
        }
    }
    let all =
        topics.iter().flat_map(|topic| topic.partitions.iter().map(move |partition| (topic, partition)));
    let named = all.filter(|(topic, partition)| {
        selections.iter().any(|selection| selection.includes(&topic.name, partition.index))
    });
    Ok(named.collect())
}

/// The names of the topics that are selected, each once.
pub(crate) fn topic_names(selections: &[PartitionSelection]) -> Vec<String> {
    let names: BTreeSet<&String> = selections.iter().map(|selection| &selection.topic).collect();
    names.into_iter().cloned().collect()
}

/// Ids of nodes, separated by commas, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeList(pub(crate) Vec<i32>);

impl std::str::FromStr for NodeList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            let number = part.trim().parse().ok().filter(|number: &i32| *number >= 0);
            number.ok_or_else(|| format!("{part:?} is no id of a node; write ids as 1,2,3"))
        };
        let ids = text.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
        let each: BTreeSet<i32> = ids.iter().copied().collect();
        if each.len() < ids.len() {
            return Err(format!("{text:?} names a node twice"));
        }
        Ok(Self(ids))
    }
}

/// Bytes a second: a number, or one with kB, MB, GB (powers of 1000) or KiB, MiB, GiB (of 1024).
pub(crate) fn byte_rate(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => 0,
    };
    let rate = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    rate.filter(|rate| (1..=i64::MAX.unsigned_abs()).contains(rate))
        .ok_or_else(|| format!("{text:?} is no rate; write bytes a second, such as 50MiB"))
}

/// A number of bytes for people.
pub(crate) fn bytes_text(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes as f64 / *size as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, partitions: i32) -> TopicView {
        let partition = |index| PartitionView { index, ..PartitionView::default() };
        TopicView {
            name: name.to_owned(),
            partitions: (0..partitions).map(partition).collect(),
            ..TopicView::default()
        }
    }

    #[test]
    fn partitions_are_selected_once_and_must_exist() {
        let topics = [topic("a", 3), topic("b", 1)];
        let pick = |texts: &[&str]| {
            let selections: Vec<PartitionSelection> =
                texts.iter().map(|text| text.parse().unwrap()).collect();
            let picked = select(&topics, &selections)?;
            Ok::<_, Failure>(
                picked.iter().map(|(t, p)| format!("{}-{}", t.name, p.index)).collect::<Vec<_>>(),
            )
        };
        assert_eq!(pick(&["b", "a:2,0", "a:0"]).unwrap(), ["a-0", "a-2", "b-0"]);
        assert_eq!(pick(&["a:3"]).unwrap_err().exit_code(), 4);
        for wrong in ["", ":1", "t:", "t:x", "t:-1"] {
            assert!(wrong.parse::<PartitionSelection>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn nodes_and_rates_are_read() {
        assert_eq!("2, 1".parse(), Ok(NodeList(vec![2, 1])));
        for wrong in ["", "1,1", "x", "-1", "1,"] {
            assert!(wrong.parse::<NodeList>().is_err(), "{wrong:?}");
        }
        assert_eq!(byte_rate("50MiB"), Ok(50 << 20));
        assert_eq!((byte_rate("10 MB"), byte_rate("7")), (Ok(10_000_000), Ok(7)));
        for wrong in ["", "0", "x", "1.5MB", "9TB", "-1"] {
            assert!(byte_rate(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!((bytes_text(12).as_str(), bytes_text(3 << 19).as_str()), ("12 B", "1.5 MiB"));
    }

    #[test]
    fn topics_are_selected_whole_or_by_partition() {
        let read = |text: &str| text.parse::<PartitionSelection>();
        assert!(read("t").unwrap().includes("t", 7));
        let some = read("t:0, 2").unwrap();
        assert!(some.includes("t", 2) && !some.includes("t", 1) && !some.includes("u", 0));
        for wrong in ["", ":1", "t:", "t:x", "t:-1", "t:1,,2"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
