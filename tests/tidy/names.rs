//! Checks the names of types: each has one meaning, and the root of the library has few.

use std::collections::{BTreeMap, BTreeSet};

use crate::{code, files, read};

/// The type names that several files of the product define. None may be added, and one that is no
/// longer doubled must leave the list.
const DOUBLED: &str = "
    Action Answer Answered Asked Audit Batch Bulk Call Cancel Change Changed Check Claim Clock
    Command Conflict Counted Counts Declared Defaults Doctor Done Due EndLease Ended Entry Error
    Event Extend Extended Failed Failure Fate Fields Figures Finding Fires FollowUps Frame Gate
    Grant Group History Id Inner Item Items Kept Key Keys Kind Known Last Line Lines List
    Lists Location Log Ls Master Member Message Meters Named Next Node Nodes Open Options Order
    Outcome OwnRuntime Pace Page Part Partition Partitions Parts Patience Pause Pending Phase
    Place Plan Prefix Push Queue QueueLimits Queues Range Rate Read Reader Release Reply
    Report Request Requeue Reschedule Results Resume Retry Row Run Running Schedule Search Secrets
    Sender Sent Served Server Settlement Share Shared Show Shown Slot Source State Step Stop
    Stream Summary Tab Tally Tick Times Timing Turn Turns Typed Usage Verdict View Waiting
    Wanted Watched Work Wrong
";

/// The most names at the root of the library, modules apart: what nearly every user needs.
const MAX_AT_ROOT: usize = 36;

#[test]
fn no_type_name_is_doubled_and_the_list_is_true() {
    let mut defined: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for folder in ["src", "serve/src", "cli/src", "input/src"] {
        for (name, text) in files(folder, "rs").into_iter().filter(is_product) {
            for found in code(&text).lines().filter_map(type_name) {
                let files = defined.entry(found.to_owned()).or_default();
                files.insert(name.clone());
            }
        }
    }
    assert!(defined.len() > 500, "the test does not find the types");
    defined.retain(|_, files| files.len() > 1);
    let listed: BTreeSet<_> = DOUBLED.split_whitespace().collect();
    let is_new = |name: &str| !listed.contains(name);
    let new: Vec<_> = defined.iter().filter(|(name, _)| is_new(name)).collect();
    assert!(
        new.is_empty(),
        "one of them needs another name, or both one definition: {new:#?}"
    );
    let is_gone = |name: &&&str| !defined.contains_key(**name);
    let gone: Vec<_> = listed.iter().filter(is_gone).collect();
    assert!(gone.is_empty(), "gone; take them off the list: {gone:#?}");
}

fn is_product((name, _): &(String, String)) -> bool {
    let is_test = name.contains("/tests/") || name.ends_with("tests.rs");
    // In `lib.rs`, the pages of the doc tests are modules that look like types.
    !is_test && name != "src/lib.rs"
}

/// The name of the type, such as `Queue` for `pub struct Queue<C> {`. Types that belong to a trait
/// do not count.
fn type_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().peekable();
    words.next_if(|word| word.starts_with("pub"));
    let kind = words.next()?;
    let is_type = ["struct", "enum", "trait", "union"].contains(&kind)
        || (kind == "type" && !line.starts_with(' '));
    let name = words.next().filter(|_| is_type)?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(&name[..end.unwrap_or(name.len())])
}

#[test]
fn root_of_the_library_has_few_names() {
    let code = code(&read("src/lib.rs"));
    let root = code.split("pub mod harness").next().unwrap_or_default();
    let names: usize = root
        .split("pub use ")
        .skip(1)
        .map(|used| used.split(';').next().unwrap_or_default())
        .map(|used| {
            used.split(',')
                .filter(|name| !name.trim().is_empty() && name.trim() != "}")
                .count()
        })
        .sum();
    assert!((20..=MAX_AT_ROOT).contains(&names), "{names} names");
}
