//! Release 0.1 of the wire contract in `tests/compat/0.1`: its scripts and its Functions library.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
pub(crate) use dueq_testkit::scripts::frozen as scripts;

use crate::reply::Text;

/// The checksum (FNV-1a) of the names and bytes of all frozen files: release 0.1 never changes.
const FROZEN: u64 = 0x4cd1_fddb_cb30_58cb;
/// The checksum (FNV-1a) of the Functions library that release 0.1 loads, 226,155 bytes.
const LIBRARY: u64 = 0xab15_c492_c9ce_732b;

/// The order of the functions in the library.
const VERBS: [&str; 25] = [
    "push",
    "upsert",
    "promote",
    "claim",
    "ack",
    "again",
    "retry",
    "release",
    "bury",
    "extend",
    "reap",
    "cancel",
    "reschedule",
    "run_now",
    "requeue",
    "purge",
    "pause",
    "resume",
    "configure",
    "beat",
    "get",
    "peek",
    "stats",
    "verify",
    "audit",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compat/0.1")
}

/// The text of the Functions library: each script in a function with the script's own flags.
pub(crate) fn functions() -> Result<String> {
    let scripts = scripts()?;
    let mut library = String::from("#!lua name=dueq\n");
    let mut register = |name: &str, flags: &str, function: &str| {
        library += &format!(
            "\nredis.register_function{{function_name = 'dueq_{name}', flags = {{{flags}}}, callback = function({function}end}}\n"
        );
    };
    for verb in VERBS {
        let (shebang, body) = scripts[verb].split_once('\n').context("one line")?;
        let flags = match shebang.split_once("flags=") {
            Some((_, flag)) => format!("'{flag}'"),
            None => String::new(),
        };
        register(verb, &flags, &format!("KEYS, ARGV)\n{body}"));
    }
    register("version", "'no-writes'", ")\n  return 11\n");
    Ok(library)
}

/// Whether release 0.1 can serve the call. It does not know parking, pauses with an end, or ending
/// a lease by its name; it knows three options and six limits.
pub(crate) fn knows(verb: &str, argv: &[Text]) -> bool {
    let newer = [
        "expires=",
        "on_expire=",
        "cost=",
        "rate",
        "max_leased",
        "max_throttle_ms",
        "window=",
        "reuse",
        "max_wait=",
        "revive",
        "undo=",
        "on_conflict=next",
        "max_remembered",
        "layout",
    ];
    let is_newer = |word: &Text| newer.iter().any(|newer| word.text().contains(newer));
    match verb {
        "beat" => argv.len() <= 3,
        "pause" => argv.len() <= 1,
        "get" => argv.len() <= 2,
        "peek" => argv.len() <= 4,
        "purge" => argv.len() <= 3,
        "reap" => argv.len() <= 2,
        "push" | "upsert" | "configure" => !argv.iter().any(is_newer),
        _ => true,
    }
}

/// Paths below `folder`, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

fn fnv_1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[test]
fn release_0_1_is_frozen() -> Result<()> {
    const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;
    let mut hash = EMPTY;
    let mut add = |name: &str, bytes: &[u8]| {
        hash = fnv_1a(hash, &[name.as_bytes(), b"\0", bytes].concat());
    };
    for path in files(&folder().join("clients"))? {
        let name = path.strip_prefix(folder())?.to_str();
        add(name.context("a name in UTF-8")?, &fs::read(&path)?);
    }
    for (verb, script) in scripts()? {
        add(&format!("lua/{verb}.lua"), script.as_bytes());
    }
    let library = fnv_1a(EMPTY, functions()?.as_bytes());
    ensure!(
        (hash, library) == (FROZEN, LIBRARY),
        "tests/compat/0.1 has changed (files {hash:#018x}, library {library:#018x}): clients of release 0.1 still call its scripts"
    );
    Ok(())
}
