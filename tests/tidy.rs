//! Holds the invariants of ARCHITECTURE.md that a look at the files can hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// All files below a folder of the repository with this extension, as (path from the root, text).
fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut folders) = (Vec::new(), vec![root.join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        {
            let path: PathBuf = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let name = path
                    .strip_prefix(root)
                    .expect("below the root")
                    .display()
                    .to_string();
                found.push((name, fs::read_to_string(&path).expect("text")));
            }
        }
    }
    assert!(
        !found.is_empty(),
        "no .{extension} files below {folder}: this test looks in the wrong place"
    );
    found.sort();
    found
}

/// The code without comments and without its unit tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or(text);
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn only_these_files_name_the_redis_crates() {
    let may = [
        "src/server/",
        "src/protocol/",
        "src/checks/",
        "src/client.rs",
    ];
    for (name, text) in files("src", "rs") {
        if may.iter().any(|place| name.starts_with(place)) {
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
fn key_names_and_lua_are_in_one_file_each() {
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
fn what_is_told_is_in_one_file_and_on_the_page_about_it() {
    for (name, text) in files("src", "rs") {
        let code = code(&text);
        let told = [
            "error!(", "warn!(", "info!(", "debug!(", "trace!(", "span!(", "event!(",
        ];
        let tells = told
            .iter()
            .any(|word| code.contains(&format!("tracing::{word}")));
        assert!(
            name == "src/telemetry/events.rs" || !tells,
            "{name} tells something: events have their names in src/telemetry/events.rs"
        );
    }
    let read = |name| {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("a file")
    };
    let (page, events, counts) = (
        read("docs/telemetry.md"),
        read("src/telemetry/events.rs"),
        read("src/telemetry/metrics/count.rs"),
    );
    let named: Vec<_> = events
        .split('"')
        .filter(|word| word.starts_with("dueq."))
        .collect();
    assert!(
        named.len() > 20,
        "{named:?}: this test looks in the wrong place"
    );
    for name in &named {
        assert!(
            page.contains(&format!("| `{name}` |")),
            "docs/telemetry.md has no line on {name}"
        );
    }
    for name in page
        .split('`')
        .filter(|word| word.starts_with("dueq.") && !word.contains('='))
    {
        assert!(
            named.contains(&name),
            "docs/telemetry.md names {name}, which is not told"
        );
    }
    for name in counts
        .lines()
        .filter_map(|line| line.trim().strip_suffix("\",")?.split_once('"'))
        .filter(|(_, name)| *name != "{}")
    {
        assert!(
            page.contains(&format!("`{}`", name.1)),
            "docs/telemetry.md does not name the count {}",
            name.1
        );
    }
}

#[test]
fn what_may_import_what() {
    // A folder or file, and what of this crate it may name.
    let may: &[(&str, &[&str])] = &[
        ("src/wheel/", &["wheel"]),
        ("src/timers/", &["wheel"]),
        ("src/error.rs", &[]),
        ("src/model/", &["error", "model"]),
        ("src/telemetry/", &["error", "telemetry"]),
        ("src/protocol/", &["error", "model", "protocol"]),
        (
            "src/server/",
            &["error", "model", "protocol", "server", "telemetry"],
        ),
        (
            "src/batch/",
            &["error", "model", "telemetry", "protocol", "server", "batch"],
        ),
        (
            "src/client.rs",
            &["error", "telemetry", "model", "protocol", "server", "queue"],
        ),
        (
            "src/partition/",
            &[
                "error",
                "model",
                "telemetry",
                "protocol",
                "server",
                "batch",
                "partition",
            ],
        ),
        ("src/router.rs", &["error", "server", "partition"]),
        (
            "src/delivery.rs",
            &[
                "error",
                "model",
                "telemetry",
                "protocol",
                "server",
                "batch",
                "partition",
            ],
        ),
        (
            "src/node/",
            &[
                "error",
                "model",
                "telemetry",
                "protocol",
                "server",
                "batch",
                "partition",
                "delivery",
                "wheel",
                "node",
            ],
        ),
        (
            "src/worker/",
            &[
                "error",
                "model",
                "protocol",
                "partition",
                "delivery",
                "node",
                "worker",
            ],
        ),
    ];
    let pure = [
        "src/wheel/",
        "src/error.rs",
        "src/model/",
        "src/telemetry/metrics/",
        "src/node/timers.rs",
    ];
    for (name, text) in files("src", "rs") {
        let code = code(&text);
        if let Some((_, allowed)) = may.iter().find(|(place, _)| name.starts_with(place)) {
            for used in code
                .match_indices("crate::")
                .map(|(at, prefix)| &code[at + prefix.len()..])
            {
                let module: String = used
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                assert!(
                    allowed.contains(&module.as_str()),
                    "{name} names crate::{module}"
                );
            }
        }
        if pure.iter().any(|place| name.starts_with(place)) && !name.contains("/tests/") {
            assert!(
                !code.contains("tokio"),
                "{name} is to be pure, and names tokio"
            );
            assert!(
                !code.contains("SystemTime::now") && !code.contains("Instant::now"),
                "{name} reads a clock"
            );
        }
    }
    for folder in ["cli/src", "examples"] {
        for (name, text) in files(folder, "rs") {
            // Reads keys of other programs, which are no queues: the public API has no call for them.
            if name == "cli/src/commands/import/store.rs" {
                assert!(
                    !code(&text).contains("dueq:{"),
                    "{name} touches keys of a queue"
                );
                continue;
            }
            assert!(
                !code(&text).contains("redis::"),
                "{name} goes around the public API"
            );
        }
    }
}

/// The folder of `src` that a file is in, or the name of a file that is in none.
fn part_of(name: &str) -> String {
    let name = name.trim_start_matches("src/").trim_end_matches(".rs");
    name.split('/').next().unwrap_or_default().to_owned()
}

#[test]
fn folders_of_src_import_each_other_without_circles() {
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, text) in files("src", "rs") {
        // The root of the crate names everything.
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
        "this test reads imports wrongly"
    );
    // Take away whatever imports nothing that is left: a circle stays.
    while let Some(leaf) = imports
        .iter()
        .find(|(_, used)| !used.iter().any(|other| imports.contains_key(other)))
        .map(|(part, _)| part.clone())
    {
        imports.remove(&leaf);
    }
    assert!(imports.is_empty(), "these import each other: {imports:?}");
}

#[test]
fn only_the_protocol_knows_the_words_of_replies() {
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
        // `server` names Redis's own commands and error codes, of which some are the same words.
        let may = ["src/protocol/", "src/server/", "src/checks/"];
        if may.iter().any(|place| name.starts_with(place)) {
            continue;
        }
        for word in words {
            assert!(
                !code(&text).contains(&format!("\"{word}\"")),
                "{name} reads the word {word} of a reply: src/protocol/results decodes it"
            );
        }
    }
}

#[test]
fn batches_know_no_verb_by_name() {
    for (name, text) in files("src/batch", "rs") {
        assert!(!code(&text).contains("Verb::"), "{name} names a verb");
    }
}

#[test]
fn no_decision_is_taken_by_the_text_of_an_error() {
    for (name, text) in files("src", "rs") {
        if name.ends_with("tests.rs") {
            continue;
        }
        let code = code(&text).replace(char::is_whitespace, "");
        for test in [
            "to_string().contains(",
            "to_string().starts_with(",
            "to_string().ends_with(",
        ] {
            assert!(
                !code.contains(test),
                "{name} decides by {test}: ask kind() or code()"
            );
        }
    }
}

#[test]
fn nothing_reads_the_wall_clock_in_the_library() {
    for (name, text) in files("src", "rs") {
        assert!(
            !code(&text).contains("SystemTime::now"),
            "{name}: due times are Redis's, the rest is monotonic"
        );
    }
}

/// The sources of the scripts as (path, verb, text), without the blocks and without lua/dist.
fn scripts() -> Vec<(String, String, String)> {
    let verb = |name: &str| Some(name.strip_prefix("lua/")?.strip_suffix(".lua")?.to_owned());
    let all = files("lua", "lua").into_iter();
    all.filter_map(|(name, text)| {
        verb(&name)
            .filter(|verb| !verb.contains('/'))
            .map(|verb| (name, verb, text))
    })
    .collect()
}

#[test]
fn every_script_has_its_header_and_the_prelude() {
    for (name, verb, text) in scripts() {
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("#!lua"),
            "{name} begins with #!lua and its flags"
        );
        assert!(
            lines[1].starts_with(&format!("-- {verb}: ")),
            "{name} says first what it does"
        );
        for word in ["KEYS", "ARGV", "Reply", "Errors", "Cost", "Again"] {
            assert!(
                lines
                    .iter()
                    .any(|line| line.starts_with(&format!("-- {word}"))),
                "{name} has no line {word}"
            );
        }
        assert!(
            lines.contains(&"--- use: prelude"),
            "{name} checks framing and layout like all others"
        );
    }
}

#[test]
fn lua_lines_are_short_and_each_if_has_lines_of_its_own() {
    // lua/dist is made of the others, indented.
    let sources = files("lua", "lua").into_iter();
    for (name, text) in sources.filter(|(name, _)| !name.starts_with("lua/dist/")) {
        for (number, line) in text.lines().enumerate() {
            let at = format!("{name}:{}", number + 1);
            assert!(line.chars().count() <= 120, "{at} is too long: {line}");
            let code = line.split(" -- ").next().unwrap_or_default().trim_end();
            let short = [" then return ", " then return", " then break"]
                .iter()
                .any(|exit| code.contains(exit));
            assert!(
                !code.trim_start().starts_with("if ") && !code.trim_start().starts_with("elseif ")
                    || !code.contains(" then ")
                    || short,
                "{at}: only return and break may follow `then`: {line}"
            );
        }
    }
}

#[test]
fn lua_dist_is_what_the_sources_make() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = std::process::Command::new(root.join("scripts/lua-dist"))
        .arg("--check")
        .output()
        .expect("scripts/lua-dist");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

#[test]
fn every_block_is_used() {
    let sources: String = files("lua", "lua")
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    for (name, _) in files("lua/blocks", "lua") {
        let block = name
            .trim_start_matches("lua/blocks/")
            .trim_end_matches(".lua");
        assert!(
            sources.contains(&format!("--- use: {block}\n")),
            "no script uses {name}"
        );
    }
}

/// Files that are still to be split.
const TOO_LONG: &[&str] = &[
    "tests/library/faults/failover.rs",
    "tests/library/faults/proxied.rs",
    "tests/protocol/model/driver.rs",
    "tests/protocol/model/world.rs",
    "tests/protocol/vectors/claims.rs",
    "tests/protocol/vectors/pushes.rs",
    "tests/protocol/vectors/refusals.rs",
    "tests/protocol/vectors/repairs.rs",
    "tests/protocol/vectors/repeats.rs",
    "tests/tidy.rs",
];

#[test]
fn no_file_grows_beyond_what_one_reads_at_once() {
    for folder in [
        "src",
        "bench/src",
        "bench/driver",
        "chaos",
        "cli",
        "fuzz/src",
        "fuzz/fuzz_targets",
        "testkit",
        "tests",
        "examples",
    ] {
        for (name, text) in files(folder, "rs") {
            if TOO_LONG.contains(&name.as_str()) {
                continue;
            }
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

#[test]
fn architecture_names_every_part_of_the_library() {
    let map = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md"))
        .expect("ARCHITECTURE.md");
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

#[test]
fn troubleshooting_covers_every_error() {
    let read = |name| {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("a page")
    };
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
            "docs/guide/troubleshooting.md does not say what to do about {code}"
        );
        count += 1;
    }
    assert!(
        count > 15,
        "{count} codes: this test looks in the wrong place"
    );
}

#[test]
fn reliability_and_security_name_tests_that_exist() {
    // A page, the folder that its files are named from, and how many tests it names at least.
    for (page, folder, least) in [
        ("docs/reliability/README.md", "tests", 50),
        ("SECURITY.md", "", 25),
    ] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(root.join(page)).expect("a page");
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
        assert!(
            count > least,
            "{count} tests: this test looks in the wrong place"
        );
    }
}

#[test]
fn the_program_writes_through_one_file() {
    for (name, text) in files("cli/src", "rs") {
        // A command of --exec says what it says: its stderr goes on to ours.
        if matches!(
            name.as_str(),
            "cli/src/output.rs" | "cli/src/commands/work/exec.rs"
        ) {
            continue;
        }
        for word in [
            "print!",
            "println!",
            "eprint!",
            "eprintln!",
            "stdout()",
            "stderr()",
            "io::stderr",
            "dbg!",
        ] {
            assert!(
                !code(&text).contains(word),
                "{name} has {word}: what it prints must pass through output.rs"
            );
        }
    }
}

#[test]
fn tls_trusts_nobody_unasked() {
    for folder in ["src", "cli/src"] {
        for (name, text) in files(folder, "rs") {
            for word in [
                "danger",
                "insecure: false",
                "accept_invalid",
                "ServerCertVerifier",
            ] {
                assert!(!code(&text).contains(word), "{name} has {word}");
            }
        }
    }
    for manifest in ["Cargo.toml", "cli/Cargo.toml"] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest))
            .expect("a manifest");
        assert!(!text.contains("insecure"), "{manifest}");
    }
}

/// A key that was made of a payload or an id would be somebody else's.
#[test]
fn scripts_touch_declared_keys_only() {
    let names = "SCHEDULED READY LEASES CLAIMS MESSAGES ATTRS DEAD RECENT NODES META zset hash key wake state";
    let names: Vec<&str> = names.split(' ').collect();
    let mut count = 0;
    for (name, text) in files("lua/dist", "lua") {
        let (text, mut calls) = (text.replace("redis.pcall(", "redis.call("), 0);
        for line in text.lines().filter(|line| !line.starts_with("--")) {
            for call in line.split("redis.call(").skip(1) {
                // A command that is put together; its key is the second word all the same.
                let made = ["read, KEYS[i])", "reads[i], KEYS[i])"]
                    .iter()
                    .any(|made| call.starts_with(made));
                let scans = text
                    .contains("scan, step = {zset and 'ZSCAN' or 'HSCAN', zset or hash, cursor");
                if made || scans && call == "unpack(scan))" {
                    continue;
                }
                let call = call
                    .strip_prefix('\'')
                    .unwrap_or_else(|| panic!("{name}: {line}"));
                let (command, rest) = call.split_once('\'').expect("a command in quotes");
                let rest = rest
                    .trim_start_matches(", ")
                    .trim_start_matches("'ENCODING', ");
                let first: String = rest
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                let allowed = match command {
                    "TIME" => rest.starts_with(')'),
                    "SPUBLISH" => rest.starts_with("base .. ':notice', "),
                    _ => names.contains(&first.as_str()),
                };
                assert!(allowed, "{name}: {command} {rest}");
                calls += 1;
            }
            // The prelude compares the keys that it was given with what they should be.
            for made in line.replace("~= base .. ", "~= ").split("base .. ").skip(1) {
                let is_known = ["':wake'", "':notice'", "table.concat(ARGV, ' '"]
                    .iter()
                    .any(|known| made.starts_with(known));
                assert!(is_known, "{name} makes a key: {line}"); // the last is hashed, for the word `incarnation`
            }
        }
        assert!(
            calls > 0,
            "{name} calls nothing: this test looks in the wrong place"
        );
        count += calls;
    }
    assert!(
        count > 300,
        "{count} calls: this test looks in the wrong place"
    );
}

/// As Redis writes them: capitals only.
fn is_code(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_uppercase())
}
