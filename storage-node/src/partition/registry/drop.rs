//! Copies that do not belong here any more. Where one was placed is forgotten only when its files are gone: what is left of it must
//! not lie beside another copy, made anew in another directory, when the node starts the next time.

use proto_types::ids::TopicPartition;
use storage_node_core::image::ClusterImage;
use tokio::sync::oneshot;

use super::{Copy, Partitions};
use crate::disk::event::{DropCopy, Event};

/// A copy that is being dropped.
#[derive(Debug)]
pub(super) struct Dropping {
    id: TopicPartition,
    /// The data directories that are to lose it, by their places, and whether they have.
    from: Vec<(usize, oneshot::Receiver<bool>)>,
}

impl Partitions {
    /// The copy does not belong here any more. Its files go only if the topic is known to be gone or placed elsewhere,
    /// which is what the image says.
    pub(super) async fn begin_drop(&self, id: TopicPartition, image: &ClusterImage) -> Option<Dropping> {
        let copy = self.copies.write().remove(&id)?;
        tracing::info!(partition = %id, index = %image.index(), "drop a partition copy");
        if self.is_late(id) {
            // It goes when it has come up.
            return None;
        }
        let mut places = match copy {
            Copy::Open { handle, .. } => vec![handle.directory()],
            // What is left of it goes too.
            Copy::Failed => match self.in_doubt.lock().get(&id) {
                Some(places) => places.clone(),
                None => vec![self.placed.lock().get(&id).copied()?],
            },
        };
        self.damaged.lock().remove(&id);
        self.retries.forget(id);
        self.moves.cancel(id);
        let target = self.drop_left(id).filter(|target| !places.contains(target));
        places.extend(target);
        let mut from = Vec::with_capacity(places.len());
        for place in places {
            let (done, dropped) = oneshot::channel();
            self.send(place, Event::Drop(DropCopy { id, delete: true, done })).await;
            from.push((place, dropped));
        }
        Some(Dropping { id, from })
    }

    /// Waits until the copy is gone. One that could not be removed stays placed where it is, and in doubt if it is in several
    /// directories.
    pub(super) async fn finish_drop(&self, Dropping { id, from }: Dropping) {
        let mut left = Vec::new();
        for (place, dropped) in from {
            // A thread that ended before has removed nothing.
            if !dropped.await.unwrap_or(false) {
                left.push(place);
            }
        }
        match left.first() {
            None => self.placed.lock().remove(&id),
            Some(&place) => self.placed.lock().insert(id, place),
        };
        match left.len() {
            0 | 1 => self.in_doubt.lock().remove(&id),
            _ => self.in_doubt.lock().insert(id, left),
        };
    }

    /// Whether several directories have a copy, and nobody knows which of them counts.
    pub(super) fn is_in_doubt(&self, id: TopicPartition) -> bool {
        self.in_doubt.lock().contains_key(&id)
    }
}
