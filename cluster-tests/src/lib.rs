//! cluster-tests
