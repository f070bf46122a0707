//! log-engine
