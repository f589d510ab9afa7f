//! Group commit: while one script call is in flight, the items that arrive are gathered and sent as
//! the next call.
//!
//! A second call joins the first in flight once enough items have gathered, so that Redis works
//! while this process does. A lone caller waits for no other. Each caller gets its own result, and
//! only after Redis has replied. A caller that drops its future neither loses nor repeats the items
//! of others; its own item is sent all the same.

mod batcher;
mod by_claim;
mod call;
mod first_try;
mod gather;
mod in_flight;
mod item;
mod replied;
mod supervise;
mod verb;

pub(crate) use batcher::Batcher;
pub(crate) use call::CallSpec;
pub(crate) use item::{Answer, Answered, Group, Item, OfClaim, allows_new_try};
pub(crate) use supervise::Supervisor;
pub(crate) use verb::{BatchVerb, Prefix, Tries, Verdict};
