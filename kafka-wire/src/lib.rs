//! kafka-wire
