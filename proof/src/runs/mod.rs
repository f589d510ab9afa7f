//! The proofs, one module each.

pub mod broken;
pub mod chaos;
pub mod limits;
pub mod poison;
pub mod schedules;
pub mod soak;
pub mod uniqueness;
