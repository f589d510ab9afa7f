//! The error of a wheel at its capacity limit.

use std::{error, fmt};

/// The wheel is at its capacity limit; the value is returned.
///
/// The error of [`Wheel::insert`](super::Wheel::insert). A timer that fires or is removed makes
/// room at once.
///
/// ```
/// use dueq::wheel::{Full, Wheel};
///
/// let mut wheel = Wheel::with_capacity_limit(1);
/// let first = wheel.insert(10, "first").unwrap();
///
/// let Err(Full(value)) = wheel.insert(20, "second") else { panic!("the limit is one") };
/// assert_eq!(value, "second");
///
/// wheel.remove(first);
/// assert!(wheel.insert(20, value).is_ok());
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

/// Does not show the value, so that `T` need not implement `Debug`.
impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wheel is at its capacity limit")
    }
}

impl<T> error::Error for Full<T> {}
