//! What may happen to one message: I1 to I13, I23 and I24 of docs/protocol/guarantees.md.

pub(super) mod allowed;
pub(super) mod expiry;
pub(super) mod hypothesis;
pub(super) mod judge;
pub(super) mod moves;
pub(super) mod options;
pub(super) mod reads;
pub(super) mod repeats;
pub(super) mod times;
pub(super) mod transitions;
pub(super) mod unknown;
