//! The pure half of the storage node: what it knows of the cluster, and what a partition does next.
//!
//! Nothing here does I/O, reads a clock or draws a random number: everything comes in as an argument.

pub mod effective_config;
pub mod image;
