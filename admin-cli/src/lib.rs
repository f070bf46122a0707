//! admin-cli
