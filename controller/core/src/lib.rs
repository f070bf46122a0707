//! How the cluster's metadata changes: plan, commit, apply.
//!
//! [`ClusterState`] is what the metadata log says. A request is *planned* by a pure function of [`plan`], which looks at
//! the state and returns [`MetadataChange`](proto_types::metadata::MetadataChange)s and an answer, or a rejection. The
//! shell (`controller`) commits the changes by raft and then *applies* them, here and on every node. Applying cannot fail
//! and decides nothing: whatever is not determined by the state (ids, placement, time) was chosen by the plan from its
//! [`Inputs`] and is inside the change.
//!
//! Nothing here reads a clock, a file or a socket; the same inputs give the same bytes.

pub mod caught_up;
pub mod chance;
pub mod coordinator_sessions;
pub mod invariants;
pub mod limits;
pub mod observe;
pub mod placement;
pub mod plan;
pub mod sessions;
pub mod state;
pub mod topic_name;

pub use caught_up::CaughtUp;
pub use chance::Chance;
pub use coordinator_sessions::CoordinatorSessions;
pub use limits::Limits;
pub use plan::{Decision, Inputs};
pub use sessions::Sessions;
pub use state::ClusterState;
