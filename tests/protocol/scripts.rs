//! The scripts by name, as they are in `lua/dist/`.

use std::path::PathBuf;

use anyhow::Result;

macro_rules! scripts {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../lua/dist/", $name, ".lua")))),*] };
}

pub(crate) const SCRIPTS: &[(&str, &str)] = scripts![
    "ack",
    "again",
    "audit",
    "beat",
    "bury",
    "cancel",
    "claim",
    "configure",
    "extend",
    "get",
    "pause",
    "peek",
    "promote",
    "purge",
    "push",
    "reap",
    "release",
    "requeue",
    "reschedule",
    "resume",
    "retry",
    "run_now",
    "stats",
    "upsert",
    "verify",
];

/// Where the scripts are read instead, for `scripts/mutants`: files of the same names.
fn folder() -> Option<PathBuf> {
    std::env::var_os("DUEQ_TEST_SCRIPTS").map(PathBuf::from)
}

/// Whether they are others than those of the library. Then the Functions library, which is of the latter, proves nothing.
pub(crate) fn are_replaced() -> bool {
    folder().is_some()
}

/// What the verb runs: the file of `DUEQ_TEST_SCRIPTS`, else this source.
pub(crate) fn read(verb: &str, source: &str) -> Result<String> {
    match folder() {
        Some(folder) => Ok(std::fs::read_to_string(folder.join(format!("{verb}.lua")))?),
        None => Ok(source.to_owned()),
    }
}

#[test]
fn no_script_is_left_untested() -> Result<()> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua"))? {
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
