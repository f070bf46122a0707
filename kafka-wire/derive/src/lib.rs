//! kafka-wire-derive
