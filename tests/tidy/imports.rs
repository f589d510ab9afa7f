//! Checks which part of the library names which other part, crate or word.

use std::collections::{BTreeMap, BTreeSet};

use crate::{code, files};

#[test]
fn only_the_server_layers_name_the_redis_crates() {
    let may = [
        "src/server/",
        "src/protocol/",
        "src/checks/",
        "src/client.rs",
    ];
    for (name, text) in files("src", "rs") {
        if may.iter().any(|path| name.starts_with(path)) {
            continue;
        }
        for word in ["redis::", "deadpool"] {
            assert!(
                !code(&text).contains(word),
                "{name} names {word}: only {may:?} may"
            );
        }
    }
}

#[test]
fn only_hours_and_schedules_name_the_crate_jiff() {
    let mut count = 0;
    for (name, text) in files("src", "rs") {
        let is_named = code(&text).contains("jiff");
        let may = name.starts_with("src/model/business_hours/")
            || name.starts_with("src/model/schedule/")
            || name == "src/model/zone.rs";
        assert!(may || !is_named, "{name} names jiff");
        // Private functions may use types of jiff.
        let lines = text.lines().map(str::trim_start);
        for line in lines.filter(|line| line.starts_with("pub fn") || line.starts_with("pub use")) {
            let types = ["jiff", "TimeZone", "Timestamp", "Zoned"];
            assert!(
                !may || !types.iter().any(|word| line.contains(word)),
                "{name}: {line}"
            );
        }
        count += usize::from(is_named);
    }
    assert!(count > 1, "the test does not find jiff");
}

#[test]
fn one_file_builds_key_names_and_one_file_includes_lua() {
    for (name, text) in files("src", "rs") {
        let code = code(&text);
        assert!(
            name == "src/protocol/keys.rs" || !code.contains("dueq:{"),
            "{name} builds a key name"
        );
        assert!(
            name == "src/protocol/verbs.rs" || !code.contains(".lua"),
            "{name} includes Lua"
        );
    }
}

#[test]
fn modules_import_only_what_their_layer_allows() {
    // For each folder or file, the modules of this crate that it may name.
    let may = [
        ("src/wheel/", "wheel"),
        ("src/timers/", "wheel"),
        ("src/error.rs", ""),
        ("src/model/", "error model"),
        ("src/telemetry/", "error telemetry"),
        ("src/protocol/", "error model protocol"),
        ("src/server/", "error model protocol server telemetry"),
        ("src/batch/", "error model telemetry protocol server batch"),
        (
            "src/client.rs",
            "router error telemetry model protocol server queue",
        ),
        (
            "src/partition/",
            "error model telemetry protocol server batch partition",
        ),
        (
            "src/router/",
            "error model telemetry protocol server partition router",
        ),
        (
            "src/delivery.rs",
            "error model telemetry protocol server batch partition",
        ),
        (
            "src/node/",
            "error model telemetry protocol server batch partition router delivery wheel node",
        ),
        (
            "src/worker/",
            "error model protocol server router delivery node queue client worker",
        ),
    ];
    let pure = [
        "src/wheel/",
        "src/error.rs",
        "src/model/",
        "src/telemetry/metrics/",
    ];
    for (name, text) in files("src", "rs") {
        let code = code(&text);
        if let Some((_, allowed)) = may.iter().find(|(path, _)| name.starts_with(path)) {
            for used in code
                .match_indices("crate::")
                .map(|(at, prefix)| &code[at + prefix.len()..])
            {
                let module: String = used
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                assert!(
                    allowed.split(' ').any(|allowed| allowed == module),
                    "{name} names crate::{module}"
                );
            }
        }
        if pure.iter().any(|path| name.starts_with(path)) && !name.contains("/tests/") {
            assert!(
                !code.contains("tokio"),
                "{name} must be pure, but names tokio"
            );
            assert!(
                !code.contains("SystemTime::now") && !code.contains("Instant::now"),
                "{name} reads a clock"
            );
        }
    }
    for folder in ["cli/src", "serve/src", "examples"] {
        for (name, text) in files(folder, "rs") {
            // The import reads keys of other programs, for which the public API has no call.
            if name == "cli/src/commands/import/store.rs" {
                assert!(
                    !code(&text).contains("dueq:{"),
                    "{name} touches keys of a queue"
                );
                continue;
            }
            assert!(
                !code(&text).contains("redis::"),
                "{name} bypasses the public API"
            );
        }
    }
}

#[test]
fn the_crate_input_is_pure() {
    for (name, text) in files("input/src", "rs") {
        for word in [
            "clap", "tokio", "redis::", "std::env", "std::fs", "std::io", "std::net", "::now()",
        ] {
            assert!(!code(&text).contains(word), "{name} names {word}");
        }
    }
}

/// The folder of `src` that holds a file, or the name of a file directly in `src`.
fn part_of(name: &str) -> String {
    let name = name.trim_start_matches("src/").trim_end_matches(".rs");
    name.split('/').next().unwrap_or_default().to_owned()
}

#[test]
fn folders_of_src_have_no_import_cycle() {
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, text) in files("src", "rs") {
        // The root of the crate names every part, so it is excepted.
        if name == "src/lib.rs" {
            continue;
        }
        let (part, code) = (part_of(&name), code(&text));
        let used = code.split("crate::").skip(1).map(|used| {
            let end = used.find(|c: char| !c.is_alphanumeric() && c != '_');
            used[..end.unwrap_or(used.len())].to_owned()
        });
        let others: Vec<_> = used.filter(|other| *other != part).collect();
        imports.entry(part).or_default().extend(others);
    }
    assert!(
        imports["node"].contains("partition"),
        "the test does not find the imports"
    );
    // Parts that import no remaining part are removed until none is found. What remains is a cycle.
    while let Some(leaf) = imports
        .iter()
        .find(|(_, used)| !used.iter().any(|other| imports.contains_key(other)))
        .map(|(part, _)| part.clone())
    {
        imports.remove(&leaf);
    }
    assert!(imports.is_empty(), "import cycle among {imports:?}");
}

#[test]
fn only_the_protocol_decodes_reply_words() {
    let words = [
        "OK",
        "CREATED",
        "EXISTS",
        "MOVED",
        "FINISHED",
        "EXPIRED",
        "CANCELLED",
        "REQUEUED",
        "NOT_DEAD",
        "LEASED",
        "DEAD",
        "ABSENT",
        "ALREADY",
        "CONFLICT",
        "SCHEDULED",
        "GONE",
        "LOST",
        "INVALID",
        "FULL",
    ];
    for (name, text) in files("src", "rs") {
        // `server` names commands and error codes of Redis, some of which equal reply words.
        let may = ["src/protocol/", "src/server/", "src/checks/"];
        if may.iter().any(|path| name.starts_with(path)) {
            continue;
        }
        for word in words {
            assert!(
                !code(&text).contains(&format!("\"{word}\"")),
                "{name} reads the word {word} of a reply: decode it in src/protocol/results"
            );
        }
    }
}

#[test]
fn the_batch_folder_names_no_verb() {
    for (name, text) in files("src/batch", "rs") {
        assert!(!code(&text).contains("Verb::"), "{name} names a verb");
    }
}
