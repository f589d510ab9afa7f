//! Granted deliveries that no caller has received yet.

use dueq::claims::DeliveryHandle;
use dueq::{Delivery, Queue};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use crate::edge::body::Reserved;

/// Deliveries that no caller has received yet. A drop releases them, which charges no attempt.
pub(crate) struct Unreceived {
    queue: Queue,
    handles: Vec<DeliveryHandle>,
    tasks: TaskTracker,
    /// The runtime for the releases, because the drop can happen outside of it.
    runtime: Handle,
}

impl Unreceived {
    /// Must be called within the runtime.
    pub(crate) fn new(queue: &Queue, deliveries: &[Delivery], tasks: &TaskTracker) -> Self {
        Self {
            queue: queue.clone(),
            handles: deliveries.iter().map(Delivery::handle).collect(),
            tasks: tasks.clone(),
            runtime: Handle::current(),
        }
    }

    /// The caller has received the deliveries, or can repeat the claim: they stay leased.
    pub(crate) fn received(mut self) {
        self.handles.clear();
    }
}

impl Drop for Unreceived {
    fn drop(&mut self) {
        let handles = std::mem::take(&mut self.handles);
        if handles.is_empty() {
            return;
        }
        let queue = self.queue.clone();
        self.tasks.spawn_on(release(queue, handles), &self.runtime);
    }
}

async fn release(queue: Queue, handles: Vec<DeliveryHandle>) {
    let mut releases = JoinSet::new();
    for handle in handles {
        // Release each in its own task, so that they share calls.
        let delivery = queue.delivery(handle);
        releases.spawn(async move { delivery.release().await });
    }
    while let Some(released) = releases.join_next().await {
        if let Ok(Err(error)) = released {
            tracing::warn!(name: "dueq_serve.not_released", queue = queue.name(), %error, "a message that nobody received stays leased");
        }
    }
}

/// The deliveries of a response that is not sent yet, and the memory of its body. A drop before
/// `sent` releases the deliveries.
pub(crate) struct Unsent {
    pub(crate) deliveries: Option<Unreceived>,
    pub(crate) _memory: Reserved,
}

impl Unsent {
    /// The operating system has taken the whole response: the deliveries stay leased.
    pub(crate) fn sent(self) {
        if let Some(deliveries) = self.deliveries {
            deliveries.received();
        }
    }
}
