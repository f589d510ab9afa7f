//! Checks that pages name the events, errors, folders and tests that exist.

use std::fs;
use std::path::Path;

use crate::{code, files, read};

#[test]
fn one_file_names_all_events_and_the_page_documents_them() {
    for (name, text) in files("src", "rs") {
        let code = code(&text);
        let macros = [
            "error!(", "warn!(", "info!(", "debug!(", "trace!(", "span!(", "event!(",
        ];
        let is_event = macros
            .iter()
            .any(|word| code.contains(&format!("tracing::{word}")));
        assert!(
            name == "src/telemetry/events.rs" || !is_event,
            "{name} emits an event: src/telemetry/events.rs defines all events"
        );
    }
    let (page, events, counts) = (
        read("docs/telemetry.md"),
        read("src/telemetry/events.rs"),
        read("src/telemetry/metrics/count.rs"),
    );
    let named: Vec<_> = events
        .split('"')
        .filter(|word| word.starts_with("dueq."))
        .collect();
    assert!(named.len() > 20, "{named:?}: the test misses event names");
    for name in &named {
        assert!(
            page.contains(&format!("| `{name}` |")),
            "docs/telemetry.md has no row for {name}"
        );
    }
    for name in page
        .split('`')
        .filter(|word| word.starts_with("dueq.") && !word.contains('='))
    {
        assert!(
            named.contains(&name),
            "docs/telemetry.md names {name}, which the library never emits"
        );
    }
    for name in counts
        .lines()
        .filter_map(|line| line.trim().strip_suffix("\",")?.split_once('"'))
        .filter(|(_, name)| *name != "{}")
    {
        assert!(
            page.contains(&format!("`{}`", name.1)),
            "docs/telemetry.md does not name the counter {}",
            name.1
        );
    }
}

#[test]
fn architecture_names_every_part_of_src() {
    let map = read("ARCHITECTURE.md");
    for (name, _) in files("src", "rs") {
        let part = name
            .trim_start_matches("src/")
            .split('/')
            .next()
            .unwrap_or_default();
        let part = if part.ends_with(".rs") {
            part.to_owned()
        } else {
            format!("{part}/")
        };
        assert!(
            map.contains(&part),
            "ARCHITECTURE.md does not name src/{part}"
        );
    }
}

/// The names in backticks of a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn architecture_lists_all_files_of_the_listed_folders() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (map, mut count) = (read("ARCHITECTURE.md"), 0);
    for section in map.split("\n### ").skip(1) {
        let (folder, rest) = section.split_once('\n').expect("a title");
        let Ok(entries) = fs::read_dir(root.join(folder)) else {
            continue;
        };
        let rows = rest.split("\n## ").next().unwrap_or_default();
        let cells = rows.lines().filter_map(|line| line.strip_prefix("| `"));
        let cells = cells.filter_map(|line| line.split("` |").next());
        let listed: Vec<_> = cells.flat_map(|cell| cell.split("`, `")).collect();
        for name in &listed {
            let exists = [root.join(folder).join(name), root.join(name)];
            assert!(
                exists[0].exists() || exists[0].with_extension("rs").exists() || exists[1].exists(),
                "ARCHITECTURE.md lists {name}, which is not in {folder}"
            );
        }
        for entry in entries {
            let path = entry.expect("a readable folder").path();
            let name = path.file_stem().and_then(|name| name.to_str());
            let name = name.expect("a name in UTF-8");
            let is_listed = |row: &&str| row.split('/').next() == Some(name);
            assert!(
                ["mod", "lib"].contains(&name) || listed.iter().any(is_listed),
                "ARCHITECTURE.md does not list {name} of {folder}"
            );
            count += 1;
        }
    }
    assert!(count > 100, "{count} files: the test misses sections");
}

#[test]
fn architecture_names_paths_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (map, mut count) = (read("ARCHITECTURE.md"), 0);
    for name in quoted(&map).filter(|name| !name.contains(' ')) {
        let is_pattern = name.contains("VERB") || name.contains("NAME");
        let Some((folder, _)) = name.split_once('/').filter(|_| !is_pattern) else {
            continue;
        };
        if !folder.is_empty() && root.join(folder).is_dir() {
            assert!(root.join(name).exists(), "ARCHITECTURE.md names {name}");
            count += 1;
        }
    }
    assert!(count > 100, "{count} paths: the test misses paths");
}

/// Whether a file, or one below a folder, names the verb that is the recipe's example.
fn names_the_example(path: &Path) -> bool {
    if let Ok(entries) = fs::read_dir(path) {
        let mut paths = entries.map(|entry| entry.expect("a readable folder").path());
        return paths.any(|path| names_the_example(&path));
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let name = path.display().to_string();
    ["run_now", "RunNow", "run-now"]
        .iter()
        .any(|word| text.contains(word) || name.contains(word))
}

#[test]
fn recipe_for_a_verb_names_all_files_of_its_example() {
    let (root, map) = (
        Path::new(env!("CARGO_MANIFEST_DIR")),
        read("ARCHITECTURE.md"),
    );
    let (_, section) = map
        .split_once("\n### Files of the example\n")
        .expect("the files of the example");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows: Vec<_> = section
        .lines()
        .filter(|line| line.starts_with('|'))
        .collect();
    let listed: Vec<_> = rows.iter().flat_map(|row| quoted(row)).collect();
    for name in &listed {
        assert!(
            names_the_example(&root.join(name)),
            "ARCHITECTURE.md lists {name}, which does not name run_now"
        );
    }
    let folders = [
        ("lua", "lua"),
        ("src", "rs"),
        ("src", "md"),
        ("cli/src", "rs"),
        ("serve/src", "rs"),
        ("docs/protocol", "md"),
    ];
    for (folder, extension) in folders {
        for (name, _) in files(folder, extension) {
            assert!(
                listed.contains(&name.as_str()) || !names_the_example(&root.join(&name)),
                "ARCHITECTURE.md does not list {name}, which names run_now"
            );
        }
    }
    assert!(
        listed.len() > 40,
        "{} files: the test misses rows",
        listed.len()
    );
}

#[test]
fn crate_page_lists_all_features_and_settlements() {
    let (page, manifest) = (read("src/lib.md"), read("Cargo.toml"));
    let (_, features) = manifest.split_once("\n[features]\n").expect("features");
    let features = features.split("\n[").next().unwrap_or_default();
    for (name, _) in features.lines().filter_map(|line| line.split_once(" = ")) {
        assert!(
            name == "default" || page.contains(&format!("\n| `{name}` |")),
            "src/lib.md has no row for the feature {name}"
        );
    }
    let settlements = read("src/model/settlement.rs");
    let (_, variants) = settlements
        .split_once("pub enum Settlement {\n")
        .expect("the settlements");
    let variants = variants.split("\n}").next().unwrap_or_default();
    for line in variants.lines() {
        let name = line.strip_prefix("    ").unwrap_or_default();
        let name = name.split([' ', '(', ',']).next().unwrap_or_default();
        assert!(
            !name.starts_with(char::is_uppercase)
                || page.contains(&format!("[`Settlement::{name}`]")),
            "src/lib.md does not name the settlement {name}"
        );
    }
}

#[test]
fn guide_lists_each_of_its_pages() {
    let (index, mut count) = (read("docs/guide/README.md"), 0);
    for (name, _) in files("docs/guide", "md") {
        let name = name.trim_start_matches("docs/guide/");
        assert!(
            name == "README.md" || index.contains(&format!("]({name})")),
            "docs/guide/README.md does not list {name}"
        );
        count += 1;
    }
    assert!(count > 20, "{count} pages: the test misses pages");
}

#[test]
fn page_of_http_lists_every_path_of_the_api() {
    let (page, mut count) = (read("docs/guide/http.md"), 0);
    let rows: String = page.lines().filter(|line| line.starts_with('|')).collect();
    for (name, text) in files("serve/src/routes", "rs") {
        for rest in text.split("path = \"/").skip(1) {
            let path = rest.split('"').next().unwrap_or_default();
            let path = path.replace("{queue}", "Q").replace("{name}", "NAME");
            let path = path.replace("{id}", "ID").replace("{operation}", "ID");
            let is_listed = |end: char| rows.contains(&format!(" /{path}{end}"));
            assert!(
                ['`', '?'].into_iter().any(is_listed),
                "docs/guide/http.md does not list /{path} of {name}"
            );
            count += 1;
        }
    }
    assert!(count > 30, "{count} paths: the test misses paths");
}

#[test]
fn troubleshooting_covers_every_error() {
    let (contract, guide) = (
        read("docs/protocol/calling.md"),
        read("docs/guide/troubleshooting.md"),
    );
    let (_, errors) = contract
        .split_once("\n## Errors\n")
        .expect("the section on errors");
    let (_, table) = guide.split_once("\n## Errors\n").expect("the table");
    let codes = errors
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let mut count = 0;
    for code in codes
        .flat_map(|cell| cell.split(['`', ' ', ',']))
        .filter(|word| word.len() > 2 && is_code(word))
    {
        assert!(
            table.contains(&format!("`{code}")),
            "docs/guide/troubleshooting.md has no advice for {code}"
        );
        count += 1;
    }
    assert!(count > 15, "{count} codes: the test misses error codes");
}

/// Whether the word has the form of a Redis error code: only capitals.
fn is_code(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_uppercase())
}

#[test]
fn reliability_and_security_name_tests_that_exist() {
    // For each page: the folder from which its paths start, and the least number of tests that it
    // must name.
    for (page, folder, least) in [
        ("docs/reliability/README.md", "tests", 50),
        ("SECURITY.md", "", 25),
    ] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = read(page);
        let mut count = 0;
        for (file, test) in text.split('`').filter_map(|word| word.split_once(".rs ")) {
            let path = root.join(folder).join(format!("{file}.rs"));
            let text = fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(
                text.contains(&format!("fn {test}(")),
                "{} has no test {test}",
                path.display()
            );
            count += 1;
        }
        assert!(count > least, "{page}: found only {count} test names");
    }
}

#[test]
fn reliability_names_every_guarantee() {
    let (contract, page) = (
        read("docs/protocol/guarantees.md"),
        read("docs/reliability/README.md"),
    );
    let titles: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("**")?.split(". ").next())
        .flat_map(|names| names.split(", "))
        .collect();
    let names = contract
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .filter(|name| name.ends_with(|last: char| last.is_ascii_digit()));
    let mut count = 0;
    for name in names {
        assert!(
            titles.contains(&name),
            "docs/reliability/README.md has no tests of {name}"
        );
        count += 1;
    }
    assert!(count > 30, "{count} guarantees: the test misses some");
}
