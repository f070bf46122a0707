//! Tests that run whole programs: our daemons as processes, stock Kafka clients against them, and Apache Kafka itself as
//! the reference for every question of behaviour.
//!
//! Reading order: [`oracle`] (Apache Kafka from Maven: broker, tools, message descriptions), [`process`] (a child process
//! with a log file), [`local_cluster`] (our daemons), [`clients`] (stock clients), [`load`] (a
//! producer that goes on through failures). The tests are in `tests/`.

pub mod clients;
pub mod clock;
pub mod dump;
pub mod load;
pub mod local_cluster;
pub mod moments;
pub mod oracle;
pub mod ports;
pub mod process;
pub mod run_dir;
pub mod workspace;
