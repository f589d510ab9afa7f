//! Checks the lengths of files, folders and test names, and that doc comments name their subject.

use std::collections::BTreeMap;

use crate::files;
use crate::scripts::scripts;

/// Folders with Rust sources.
const SOURCES: [&str; 13] = [
    "src",
    "bench/src",
    "bench/driver",
    "proof",
    "cli",
    "fuzz/src",
    "fuzz/fuzz_targets",
    "input",
    "otel",
    "serve",
    "testkit",
    "tests",
    "examples",
];

#[test]
fn no_file_exceeds_its_line_limit() {
    for folder in SOURCES {
        for (name, text) in files(folder, "rs") {
            assert!(
                text.lines().count() <= 400,
                "{name} has {} lines: split it",
                text.lines().count()
            );
        }
    }
    for (name, _, text) in scripts() {
        assert!(
            text.lines().count() <= 240,
            "{name} has {} lines",
            text.lines().count()
        );
    }
}

/// The folder that may have more than 20 files: clients load the scripts by the names of their
/// verbs.
const WIDE: [&str; 1] = ["lua/dist"];

#[test]
fn folders_have_at_most_20_files_side_by_side() {
    let mut sizes = BTreeMap::<String, usize>::new();
    let pages = [("lua", "lua"), ("docs", "md"), ("serve/templates", "html")];
    let sources = SOURCES.iter().map(|folder| (*folder, "rs"));
    for (folder, extension) in sources.chain(pages) {
        for (name, _) in files(folder, extension) {
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            *sizes.entry(folder.to_owned()).or_default() += 1;
        }
    }
    for (folder, size) in sizes {
        assert!(
            size <= 20 || WIDE.contains(&&*folder),
            "{folder} has {size} files: make folders in it"
        );
    }
}

/// Names of the test functions in a file: the first `fn` after each test attribute.
fn test_names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut lines = text.lines().map(str::trim_start);
    while let Some(line) = lines.next() {
        if !line.starts_with("#[test]") && !line.starts_with("#[tokio::test") {
            continue;
        }
        let function = lines.find_map(|line| line.trim_start_matches("async ").strip_prefix("fn "));
        names.extend(function.and_then(|line| line.split('(').next()));
    }
    names
}

#[test]
fn test_names_have_at_most_60_characters() {
    let mut count = 0;
    for folder in SOURCES {
        for (file, text) in files(folder, "rs") {
            for name in test_names(&text) {
                assert!(
                    name.len() <= 60,
                    "{file}: the test name {name} has {} characters: shorten it to 60",
                    name.len()
                );
                count += 1;
            }
        }
    }
    assert!(count > 500, "found only {count} test names");
}

/// Files with descriptions of the OpenAPI document that begin with "The same". The list can only shrink.
const UNNAMED: [&str; 5] = [
    "serve/src/edge/problem/mod.rs",
    "serve/src/routes/claims/answer.rs",
    "serve/src/routes/queues/backlog.rs",
    "serve/src/routes/settlements/settlement.rs",
    "serve/src/wire/messages.rs",
];

#[test]
fn doc_comments_name_their_subject() {
    for folder in ["src", "cli/src", "input/src", "serve/src"] {
        for (file, text) in files(folder, "rs") {
            if UNNAMED.contains(&&*file) {
                continue;
            }
            let mut earlier = "";
            for line in text.lines().map(str::trim_start) {
                assert!(
                    !line.starts_with("/// The same") || earlier.starts_with("///"),
                    "{file}: {line}: name the subject, which a hover does not show"
                );
                earlier = line;
            }
        }
    }
}
