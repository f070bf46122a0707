//! The threads that touch disks: one log thread per data directory owns the logs there, flushers sync for it, read
//! threads wait for cold pages, cleaner threads compact, and a scrub looks after what lies there. No async worker ever
//! does.

pub(crate) mod claim;
pub(crate) mod cleaner;
pub(crate) mod event;
pub(crate) mod event_queue;
pub(crate) mod health;
pub(crate) mod housekeeping;
pub(crate) mod log_thread;
pub(crate) mod metrics;
pub(crate) mod opener;
pub(crate) mod read_pool;
pub(crate) mod remover;
pub(crate) mod scrub;
pub(crate) mod slot;
pub(crate) mod space;

pub(crate) use event_queue::QueueLimits;
pub(crate) use housekeeping::HousekeepingLimits;
