//! The metrics that every process has, whether it serves callers or works.

use dueq::Client;
use dueq::metrics::PrometheusText;

/// What a process reports of itself.
pub(crate) struct Process {
    pub(crate) is_redis_up: bool,
    /// `None` without a worker, or without a node that claims for callers.
    pub(crate) free_handlers: Option<usize>,
    pub(crate) connections_opened: u64,
}

impl Process {
    pub(crate) fn new(client: &Client, is_redis_up: bool, free_handlers: Option<usize>) -> Self {
        Self {
            is_redis_up,
            free_handlers,
            connections_opened: client.connections_opened(),
        }
    }

    pub(crate) fn write(&self, text: &mut PrometheusText) {
        let name = "dueq_build_info";
        text.metric(name, "gauge", "Always 1; the label is the version.");
        text.sample(name, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        text.gauge(
            "dueq_redis_up",
            "1 if Redis answers this process.",
            f64::from(u8::from(self.is_redis_up)),
        );
        text.counter(
            "dueq_connections_opened_total",
            "Connections to Redis that were opened, also to replace lost ones.",
            self.connections_opened,
        );
        if let Some(free) = self.free_handlers {
            text.gauge(
                "dueq_free_handlers",
                "Handlers without a message; of dueq serve those that no claim in flight has, 1048576 if none is.",
                free as f64,
            );
        }
    }
}
