//! kafka-wire-core
