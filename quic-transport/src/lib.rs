//! quic-transport
