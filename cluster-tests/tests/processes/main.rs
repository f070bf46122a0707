//! Our daemons as processes: their life, their data directories, and their sudden death.

mod clock_jumps;
mod compaction;
mod coordinators;
mod daemons;
mod failing_disk;
mod full_disk;
mod group_members;
mod groups_cli;
mod kill9;
mod lost_disk;
mod proof_of_death;
#[path = "../raw_connection/mod.rs"]
mod raw_connection;
mod repair;
mod replication;
mod retention;
mod rot;
mod separate_daemons;
mod weir_dev;
