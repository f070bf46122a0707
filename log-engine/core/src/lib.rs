//! log-engine-core
