//! For operators: examine and repair queues and servers, act on whole queues step by step, grant
//! rights.
//!
//! - **Examine.** [`Client::examine`](crate::Client::examine) and
//!   [`Queue::examine`](crate::Queue::examine) return a [`Checkup`] with [`Finding`]s, and the
//!   second one can also repair the queue. [`AuditSteps`] checks each message at the caller's pace.
//! - **Act in steps.** [`BulkSteps`] requeues or purges many messages at the caller's pace. [`Picks`]
//!   reads the messages that a condition of the caller selects.
//! - **Grow.** [`Repartition`] changes the number of partitions of a queue while it is used, and
//!   reports its [`RepartitionProgress`].
//! - **Find queues.** [`QueueScan`] walks through the keys of a server, and [`NewQueue`] reports
//!   queues as they are created.
//! - **Grant.** [`acl_rules`] returns the least rights of each [`AclRole`] on a queue, and
//!   [`queue_keys`] the queue's keys.
//! - **Other clients.** [`functions_code`] is the library of Redis Functions, which clients in other
//!   languages may call; [`FunctionsStatus`] tells which one a server has.
//!
//! ```
//! # dueq_testkit::doctest!(|client, orders| {
//! use dueq::admin::{AclRole, acl_rules};
//!
//! let checkup = orders.examine(false).await?;
//! for finding in &checkup.findings {
//!     println!("{}: {}; run: {}", finding.problem, finding.consequence, finding.remedy);
//! }
//! # assert!(checkup.findings.is_empty());
//! // The user of a producer: `ACL SETUSER shop`, these rules, then `on >password`.
//! println!("{}", acl_rules("orders", AclRole::Producer)?.join(" "));
//! # });
//! ```

pub use crate::acl::{AclRole, acl_rules};
pub use crate::doctor::{
    AuditProgress, AuditSteps, Checkup, Finding, ServerTime, UncheckedPart, shell_word,
};
pub use crate::functions::{FunctionsStatus, functions_code, functions_version, queue_keys};
pub use crate::model::repartition::{RepartitionPhase, RepartitionProgress};
pub use crate::model::stats::{BulkEnd, BulkProgress};
pub use crate::queue::{BulkSteps, Picks, Repartition};
pub use crate::server::new_queues::NewQueue;
pub use crate::server::queue_scan::QueueScan;
