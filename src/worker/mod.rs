//! The public worker: its settings and handlers. `node::run` does the work.

mod assemble;
mod batch;
mod builder;
mod handle;
mod handler;
mod health;
mod layer;
mod pattern;
mod puller;
mod pullers;
mod queue_worker;
mod settings;
mod share;

pub use batch::{Batch, InBatches, IntoSettlements, in_batches};
pub use builder::Worker;
pub use handle::WorkerHandle;
pub use handler::{Handler, IntoHandler};
pub use health::{QueueHealth, WorkerHealth};
pub use layer::{HandlerFuture, HandlerService};
pub use pattern::QueuePattern;
pub use puller::Puller;
pub use pullers::Pullers;
pub use queue_worker::QueueWorker;
pub use settings::QueueSettings;
pub use share::Share;
