//! The one error: no room.

use std::{error, fmt};

/// The wheel is at its limit; the value comes back unharmed.
///
/// Returned by [`Wheel::insert`](super::Wheel::insert). A timer that fires or is removed makes room at once.
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

/// Says nothing about the value, so that any `T` can be unwrapped or reported.
impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wheel holds as many timers as it may")
    }
}

impl<T> error::Error for Full<T> {}
