//! Tests of a server on real sockets with a real Redis: `/v1`, and the dashboard pages.

mod access;
mod claims;
mod dashboard;
mod edge;
mod embedded;
mod every;
mod guide;
mod messages;
mod operations;
mod queues;
mod schedules;
mod settlements;
mod support;

use support::{calls, captured, instance};
