//! The scripts by verb, as they are in `lua/dist/`.

use std::path::PathBuf;

use anyhow::Result;
use dueq::admin::AclRole;

use crate::queue::{HOUR, SECOND, T0, token};
use crate::reply::{Text, words};

/// Facts of a verb that the tests need.
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    /// The role that may call the verb.
    pub(crate) role: AclRole,
    /// The keys that the verb does not read in the queue of `seed`, so that it does not notice
    /// their wrong types.
    pub(crate) unneeded: &'static [&'static str],
    /// Whether docs/protocol/states.md has a row for the verb.
    pub(crate) has_row: bool,
    /// Arguments with which the verb does something to the queue of `with_every_state`.
    pub(crate) plausible: fn() -> Vec<Text>,
    /// The content of the verb's file in `lua/dist/`.
    pub(crate) source: &'static str,
}

impl Verb {
    /// Whether a server with full memory refuses the verb, because its script has no flags.
    pub(crate) fn is_refused_when_full(&self) -> bool {
        self.source.starts_with("#!lua\n")
    }

    /// Whether the verb creates the queue.
    pub(crate) fn creates(&self) -> bool {
        self.source.contains("makes them if they do not exist")
    }

    /// Whether the verb only reads.
    pub(crate) fn only_reads(&self) -> bool {
        self.source.starts_with("#!lua flags=no-writes\n")
    }
}

/// The verb of this name. The tests have no verb without a row in `VERBS`.
pub(crate) fn verb(name: &str) -> &'static Verb {
    let found = VERBS.iter().find(|verb| verb.name == name);
    found.unwrap_or_else(|| panic!("{name} has no row in VERBS"))
}

macro_rules! verbs {
    ($($name:literal $role:ident, without $unneeded:expr, row $has_row:literal, call $plausible:expr;)*) => {
        /// Every verb. All lists of verbs in these tests follow from this table.
        pub(crate) const VERBS: &[Verb] = &[$(Verb {
            name: $name,
            role: AclRole::$role,
            unneeded: &$unneeded,
            has_row: $has_row,
            plausible: || $plausible,
            source: include_str!(concat!("../../lua/dist/", $name, ".lua")),
        }),*];

        /// The name and the script of each verb.
        pub(crate) const SCRIPTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../lua/dist/", $name, ".lua")))),*];
    };
}

/// A batch with the message `moved`, due in an hour of `T0`.
pub(crate) const BATCH: &[u8] = b"\x95\xa5moved\xa9scheduled\xad1700003600000\xa7payload\xa0";

verbs! {
    "ack" Consumer, without ["dead", "recent", "nodes"], row true,
        call words![token('l'), 1, "l"];
    "ack_push" Consumer, without ["nodes"], row true,
        call words![Text([&token('l').0[..], b"l"].concat()), "next", "+5", "payload", ""];
    "again" Consumer, without ["dead", "recent", "nodes"], row true,
        call words!["l", token('l'), "+5"];
    "amend" Operator, without ["claims", "attrs", "dead", "recent", "nodes"], row false,
        call words!["pause", "hourly"];
    "arrive" Operator, without ["nodes"], row false,
        call words!["17", 5, BATCH];
    "audit" Operator, without ["recent", "nodes"], row false,
        call words!["messages", 0, 100, "1"];
    "beat" Consumer, without ["claims"], row false,
        call words!["node", "stay"];
    "bury" Consumer, without ["recent", "nodes"], row true,
        call words!["l", token('l'), "reason"];
    "cancel" Producer, without ["nodes"], row true,
        call words!["1", "s", "r", "d"];
    "claim" Consumer, without ["dead", "recent"], row true,
        call words![10, token('x'), 30 * SECOND];
    "configure" Operator, without ["claims", "messages", "attrs", "dead", "recent", "nodes"], row false,
        call words!["max_attempts", 3];
    "depart" Operator, without ["nodes"], row false,
        call words!["", 0, "203", 5_000, "s"];
    "dues" Producer, without ["claims", "messages", "attrs", "dead", "recent", "nodes"], row false,
        call words![T0, T0 + HOUR];
    "extend" Consumer, without ["attrs", "dead", "recent", "nodes"], row true,
        call words!["l", token('l'), 60 * SECOND];
    "get" Producer, without ["recent", "nodes"], row true,
        call words!["r"];
    "held" Consumer, without ["dead", "recent", "nodes"], row false,
        call words![token('l')];
    "history" Consumer, without ["claims", "attrs", "recent", "nodes"], row false,
        call words!["minutes"];
    "nodes" Consumer, without ["claims", "messages", "attrs", "dead", "recent"], row false,
        call words![];
    "pause" Operator, without ["claims", "messages", "attrs", "dead", "recent", "nodes"], row false,
        call words![];
    "peek" Producer, without ["claims", "messages", "dead", "recent", "nodes"], row false,
        call words!["scheduled", "", 10];
    "promote" Consumer, without ["claims", "messages", "attrs", "dead", "recent", "nodes"], row true,
        call words![10];
    "purge" Operator, without ["claims", "nodes"], row true,
        call words!["scheduled", 10];
    "push" Producer, without ["nodes"], row true,
        call words!["", "new", "+1000", "payload", "max_attempts=3", "s", "+0", "other", ""];
    "reap" Consumer, without ["messages", "recent", "nodes"], row true,
        call words![10];
    "refill" Consumer, without ["claims", "attrs", "dead", "recent", "nodes"], row false,
        call words!["nightly", T0 * 1_000, T0 + HOUR, format!("2026a 0\n{}", T0 + 2 * HOUR)];
    "release" Consumer, without ["recent", "nodes"], row true,
        call words!["l", token('l')];
    "remap" Operator, without ["claims", "messages", "attrs", "dead", "recent", "nodes"], row false,
        call words!["close", 0, "7|-|- 203"];
    "requeue" Operator, without ["recent", "nodes"], row true,
        call words!["ids", "d"];
    "reschedule" Producer, without ["nodes"], row true,
        call words!["s", "+5", "", "r", "+5", ""];
    "resume" Operator, without ["claims", "messages", "attrs", "dead", "recent", "nodes"], row false,
        call words![];
    "retry" Consumer, without ["recent", "nodes"], row true,
        call words!["l", token('l'), 5, "error"];
    "run_now" Producer, without ["nodes"], row true,
        call words!["s"];
    "schedule" Operator, without ["dead", "recent", "nodes"], row false,
        call words!["set", "", "", "daily", "every=86400000", "", "", "", "payload"];
    "schedules" Consumer, without ["claims", "messages", "attrs", "dead", "recent", "nodes"], row false,
        call words!["", 10, ""];
    "snooze" Consumer, without ["recent", "nodes"], row true,
        call words!["l", token('l'), "+5"];
    "stats" Consumer, without ["claims", "attrs"], row false,
        call words![];
    "throttle" Consumer, without ["recent", "nodes"], row true,
        call words!["l", token('l'), 500];
    "trigger" Operator, without ["nodes"], row false,
        call words!["hourly", "now"];
    "upsert" Producer, without ["nodes"], row true,
        call words!["", "new", "+1000", "payload", "max_attempts=3 on_conflict=reschedule", "s", "+0", "other", "on_conflict=replace"];
    "verify" Operator, without [], row false,
        call words!["1"];
}

/// The folder of replacement scripts, which `scripts/mutants` sets. Its files have the names of
/// those in `lua/dist/`.
fn folder() -> Option<PathBuf> {
    std::env::var_os("DUEQ_TEST_SCRIPTS").map(PathBuf::from)
}

/// Whether replacement scripts are in use. The Functions library has the original scripts, so its
/// calls would prove nothing.
pub(crate) fn are_replaced() -> bool {
    folder().is_some()
}

/// The script of the verb: its file in `DUEQ_TEST_SCRIPTS`, else this source.
pub(crate) fn read(verb: &str, source: &str) -> Result<String> {
    match folder() {
        Some(folder) => Ok(std::fs::read_to_string(folder.join(format!("{verb}.lua")))?),
        None => Ok(source.to_owned()),
    }
}

#[test]
fn every_script_has_a_row_in_verbs() -> Result<()> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/dist"))? {
        found.extend(
            file?
                .file_name()
                .to_str()
                .and_then(|name| name.strip_suffix(".lua"))
                .map(str::to_owned),
        );
    }
    found.sort();
    anyhow::ensure!(found == SCRIPTS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    Ok(())
}
