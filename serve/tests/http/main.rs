//! A server on real sockets and a real Redis: `/v1`, and the pages of the dashboard.

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
