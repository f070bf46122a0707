//! Our daemons as processes on free ports.
