//! What every daemon shows of itself: log lines on standard error, and `/metrics`, `/healthz`, `/readyz` over HTTP.
//!
//! Nothing here is global but the subscriber of the log, of which a process has one: the registry of metrics is made by
//! the daemon, handed to its parts, and handed in here to be shown.

mod descriptors;
mod escape;
mod http;
mod logging;
mod process;

pub use descriptors::{descriptor_limit, raise_descriptor_limit};
pub use http::{HttpConfig, HttpError, HttpServer, Readiness};
pub use logging::{LogConfig, LogError, LogFormat, init_logging};
pub use process::ProcessCollector;
pub use prometheus_client::registry::Registry;
