//! controller-core
