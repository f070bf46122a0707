//! Partitions as a node tells clients of them.

/// Who leads a partition and who is in sync, as a node tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// The leader's id; none while there is none.
    pub leader: Option<usize>,
    /// In-sync replicas.
    pub isr: Vec<usize>,
    /// All replicas.
    pub replicas: Vec<usize>,
}

/// Reads what `kcat -L -J` prints.
pub(crate) fn partition_views(json: &serde_json::Value, topic: &str) -> Option<Vec<PartitionView>> {
    let ids = |list: &serde_json::Value| -> Option<Vec<usize>> {
        list.as_array()?.iter().map(|entry| usize::try_from(entry["id"].as_u64()?).ok()).collect()
    };
    let topic = json["topics"].as_array()?.iter().find(|found| found["topic"] == topic)?;
    let mut partitions: Vec<(i64, PartitionView)> = Vec::new();
    for partition in topic["partitions"].as_array()? {
        let leader = partition["leader"].as_i64().and_then(|id| usize::try_from(id).ok());
        let (isr, replicas) = (ids(&partition["isrs"])?, ids(&partition["replicas"])?);
        partitions.push((partition["partition"].as_i64()?, PartitionView { leader, isr, replicas }));
    }
    partitions.sort_by_key(|(index, _)| *index);
    Some(partitions.into_iter().map(|(_, view)| view).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kcat_prints_is_read() {
        let json = serde_json::json!({"topics": [{"topic": "t", "partitions": [
            {"partition": 1, "leader": -1, "replicas": [{"id": 1}, {"id": 2}], "isrs": []},
            {"partition": 0, "leader": 2, "replicas": [{"id": 1}, {"id": 2}], "isrs": [{"id": 2}]},
        ]}]});
        let views = partition_views(&json, "t").unwrap();
        assert_eq!(views[0], PartitionView { leader: Some(2), isr: vec![2], replicas: vec![1, 2] });
        assert_eq!(views[1], PartitionView { leader: None, isr: vec![], replicas: vec![1, 2] });
        assert_eq!(partition_views(&json, "other"), None);
    }
}
