//! Tests that run whole programs: our daemons as processes, stock Kafka clients against them, and Apache Kafka itself as
//! the reference for every question of behaviour.
//!
//! Reading order: [`oracle`] (Apache Kafka from Maven: broker, tools, message descriptions), [`process`] (a child process
//! with a log file), [`local_cluster`] (our daemons), [`clients`] (stock clients), [`load`] (a
//! producer that goes on through failures), [`history`] and [`checker`] (what clients saw, and whether they may), [`fsck`]
//! (what is on disk, and whether it may), [`replicated_cluster`] and
//! [`chaos`] (three nodes, and what happens to them), [`probe`] (raw requests, and what Kafka answered), [`witness`]
//! (what clients and Weir say to each other, read by others). The tests are in `tests/`.

pub mod chaos;
pub mod checker;
pub mod clients;
pub mod clock;
pub mod disks;
pub mod dump;
pub mod failing_disk;
pub mod fsck;
pub mod guard;
pub mod history;
pub mod http;
pub mod keyed;
pub mod load;
pub mod local_cluster;
pub mod memory;
pub mod moments;
pub mod netns;
pub mod oracle;
pub mod partition_view;
pub mod ports;
pub mod probe;
pub mod process;
pub mod random;
pub mod replicated_cluster;
pub mod run_dir;
pub mod tally;
pub mod witness;
pub mod workspace;
