//! Nodes that clients were told of until a moment ago.
//!
//! librdkafka from 2.10 on drops its handle of a broker as soon as an answer to Metadata leaves it out; a partition that the
//! same answer moves from that broker to another one falls between the two, and is looked for a second later. So clients
//! are told of a node for a little longer than it serves: the address is of no more use to them, and no harm.

use crate::image::ClusterImage;
use proto_types::ids::{Millis, NodeId};
use std::collections::BTreeMap;

/// The nodes that stopped being live, and since when, as one node has seen it.
#[derive(Debug, Default)]
pub struct Departed {
    since: BTreeMap<NodeId, Millis>,
}

impl Departed {
    /// The image `after` takes the place of `before`.
    pub fn observe(&mut self, before: &ClusterImage, after: &ClusterImage, now: Millis) {
        for gone in before.live_nodes().map(|node| node.registration.node) {
            if !after.is_live(gone) {
                self.since.insert(gone, now);
            }
        }
        self.since.retain(|node, _| after.node(*node).is_some() && !after.is_live(*node));
    }

    /// Those that were live less than `age_ms` ago, in order of id.
    pub fn within(&self, now: Millis, age_ms: i64) -> Vec<NodeId> {
        let recent = self.since.iter().filter(|(_, since)| now.0.saturating_sub(since.0) < age_ms);
        recent.map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::{BrokerEpoch, Incarnation, MetadataIndex};
    use proto_types::metadata::{MetadataChange, NodeRegistered};
    use uuid::Uuid;

    fn registered(id: i32) -> MetadataChange {
        MetadataChange::NodeRegistered(NodeRegistered {
            node: NodeId(id),
            broker_epoch: BrokerEpoch(1),
            incarnation: Incarnation(Uuid::from_u128(1)),
            directories: vec![],
            listeners: vec![],
            control_address: String::new(),
            data_address: String::new(),
            rack: None,
        })
    }

    fn fenced(id: i32, fenced: bool) -> MetadataChange {
        MetadataChange::NodeFenced { node: NodeId(id), broker_epoch: BrokerEpoch(1), fenced }
    }

    #[test]
    fn only_who_was_live_departs_and_whoever_is_back_has_not() {
        let mut departed = Departed::default();
        let mut image = ClusterImage::empty();
        let mut step = |now: i64, change: MetadataChange| {
            let before = image.clone();
            image.apply(MetadataIndex(image.index().0 + 1), &[change]);
            departed.observe(&before, &image, Millis(now));
            departed.within(Millis(now), 100)
        };
        assert_eq!(step(0, registered(1)), []);
        assert_eq!(step(1, registered(2)), [], "registered, and never live");
        assert_eq!(step(2, fenced(1, false)), []);
        assert_eq!(step(3, fenced(2, false)), []);
        assert_eq!(step(10, fenced(2, true)), [NodeId(2)]);
        assert_eq!(step(20, fenced(1, true)), [NodeId(1), NodeId(2)]);
        assert_eq!(step(109, registered(3)), [NodeId(1), NodeId(2)]);
        assert_eq!(step(110, registered(4)), [NodeId(1)], "for so long and no longer");
        assert_eq!(step(111, fenced(1, false)), []);
        assert_eq!(step(112, fenced(1, true)), [NodeId(1)], "it counts anew");
    }
}
