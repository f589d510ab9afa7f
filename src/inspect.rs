//! What a queue holds and what happened in it, beyond [`Queue::stats`](crate::Queue::stats) and
//! [`Queue::get`](crate::Queue::get).
//!
//! | question | call | answer |
//! |---|---|---|
//! | which messages are in a state? | [`Queue::list`](crate::Queue::list) | [`MessagePage`] of [`MessageEntry`]s; the next one begins at its [`MessageCursor`] |
//! | how did a message end? | [`Queue::end_of`](crate::Queue::end_of) | [`MessageEnd`] |
//! | what happened to a message? | [`Queue::life_of`](crate::Queue::life_of) | [`LifeEvent`]s |
//! | who has a message? | [`Queue::get`](crate::Queue::get) | [`LeaseInfo`] |
//! | how many are due until when? | [`Queue::dues`](crate::Queue::dues) | [`DueCounts`] |
//! | in which process is that worker? | [`Queue::holders`](crate::Queue::holders) | [`ProcessInfo`] |
//! | which workers does a queue have? | [`Queue::nodes`](crate::Queue::nodes) | [`NodeInfo`] |
//! | on which servers is it? | [`Queue::partitions`](crate::Queue::partitions) | [`PartitionInfo`] |
//! | what did it do last hour, week, quarter? | [`Queue::history`](crate::Queue::history) | [`QueueHistory`] |
//!
//! Calls whose name ends in `_reached` return a [`PartialRead`]: what the partitions or masters
//! that replied hold, and which ones did not reply. If a part does not reply, the calls without
//! that ending fail.
//!
//! ```
//! # dueq_testkit::doctest!(|orders| {
//! use dueq::MessageState;
//! use std::time::Duration;
//!
//! orders.push("rate it").id("order:42").delay(Duration::from_secs(60)).await?;
//! let mut cursor = None;
//! loop {
//!     let page = orders.list(MessageState::Scheduled, cursor.as_ref(), 100).await?;
//!     for message in page.messages {
//!         let id = String::from_utf8_lossy(&message.id);
//!         println!("{id} is due {} ms after 1970", message.time_ms);
//!     }
//!     cursor = page.next;
//!     if cursor.is_none() {
//!         break;
//!     }
//! }
//! # });
//! ```

pub use crate::model::history::{HistoryPoint, HistoryResolution, QueueHistory, TimeHistogram};
pub use crate::model::life::LifeEvent;
pub use crate::model::outcomes::{EndKind, MessageEnd};
pub use crate::model::process::ProcessInfo;
pub use crate::model::process::workers::WorkerProcess;
pub use crate::model::reached::{PartialRead, UnreadPart};
pub use crate::model::stats::{DueCounts, NodeInfo, PartitionInfo};
pub use crate::model::stored::{LeaseInfo, MessageCursor, MessageEntry, MessagePage};
pub use crate::telemetry::process::name_program;
