//! storage-node-core
