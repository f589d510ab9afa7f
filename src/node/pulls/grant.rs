//! Messages on their way to the caller of a pull.

use std::sync::Arc;
use std::time::Instant;

use crate::delivery::Delivery;
use crate::model::settlement::Settlement;
use crate::node::handler_runner::end;
use crate::node::handling::HandlerContext;

/// What a pull is granted. Dropped before [`take`](Self::take), it releases the messages, which
/// charges none of them.
pub(crate) struct Grant {
    deliveries: Vec<Delivery>,
    context: Option<Arc<HandlerContext>>,
}

impl Grant {
    pub(crate) fn none() -> Self {
        Self {
            deliveries: Vec::new(),
            context: None,
        }
    }

    pub(crate) fn new(deliveries: Vec<Delivery>, context: &Arc<HandlerContext>) -> Self {
        Self {
            deliveries,
            context: Some(Arc::clone(context)),
        }
    }

    /// The messages, for the caller: from now on they are the caller's.
    pub(crate) fn take(mut self) -> Vec<Delivery> {
        let now = Instant::now();
        for delivery in &self.deliveries {
            delivery.begin(now);
        }
        std::mem::take(&mut self.deliveries)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let deliveries = std::mem::take(&mut self.deliveries);
        let Some(context) = self.context.take().filter(|_| !deliveries.is_empty()) else {
            return;
        };
        let (tracker, runtime) = (context.tracker.clone(), context.runtime.clone());
        let releases = async move {
            let release = |delivery: Delivery| {
                let context = Arc::clone(&context);
                // Each in a task of its own, so that they share calls.
                context.tracker.clone().spawn(async move {
                    end(&delivery, Settlement::Release, &context).await;
                });
            };
            deliveries.into_iter().for_each(release);
        };
        // The node ends after the tasks of the tracker.
        tracker.spawn_on(releases, &runtime);
    }
}
