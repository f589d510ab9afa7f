//! `dueq doctor` and its remedies.

pub(crate) mod doctor;
pub(crate) mod faults;
pub(crate) mod pasted;
