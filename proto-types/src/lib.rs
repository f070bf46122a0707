//! proto-types
