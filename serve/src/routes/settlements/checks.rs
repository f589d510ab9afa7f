//! Checks the readers of the bodies of settlements and extensions.

use std::time::Duration;

use crate::edge::body::parse_json;
use crate::edge::problem::check_problem;
use crate::routes::settlements::settlement::Extension;
use crate::routes::settlements::settlement::Settlement;
use crate::routes::settlements::{Lists, MAX_ITEMS, only};

/// The bytes are a body of settlements. The reader accepts at most `MAX_ITEMS` items; each has a
/// complete handle, or is refused with a reason.
pub fn http_settlements(bytes: &[u8]) {
    let read = parse_json(bytes)
        .and_then(|lists: Lists<'_>| only("settlements", lists.settlements, lists.extensions));
    let items = match read {
        Ok(items) => items,
        Err(problem) => return check_problem(&problem),
    };
    assert!(items.len() <= MAX_ITEMS);
    for item in items {
        match Settlement::check(item.get()) {
            Ok((written, handle)) => assert_eq!(handle.to_string(), written),
            Err(problem) => check_problem(&problem),
        }
    }
}

/// The bytes are a body of extensions. Each item has a complete handle and a lease of at most a
/// day, or is refused with a reason.
pub fn http_extensions(bytes: &[u8]) {
    let read = parse_json(bytes)
        .and_then(|lists: Lists<'_>| only("extensions", lists.extensions, lists.settlements));
    let items = match read {
        Ok(items) => items,
        Err(problem) => return check_problem(&problem),
    };
    assert!(items.len() <= MAX_ITEMS);
    for item in items {
        match Extension::read(item.get()) {
            Ok(extended) => {
                let (least, day) = (Duration::from_millis(1), Duration::from_secs(86_400));
                assert!((least..=day).contains(&extended.lease));
                // JSON may escape characters of the handle.
                if !item.get().contains('\\') {
                    assert!(item.get().contains(&extended.handle.to_string()));
                }
            }
            Err(problem) => check_problem(&problem),
        }
    }
}
