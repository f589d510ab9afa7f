//! Length of files and of test names.

use crate::files;
use crate::scripts::scripts;

/// Folders with Rust sources.
const SOURCES: [&str; 12] = [
    "src",
    "bench/src",
    "bench/driver",
    "proof",
    "cli",
    "fuzz/src",
    "fuzz/fuzz_targets",
    "input",
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
