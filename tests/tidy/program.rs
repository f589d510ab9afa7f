//! Calls that the code of the library and of the program must not make.

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
fn the_program_writes_through_one_file() {
    let of_serve = files("serve/src", "rs");
    for (name, text) in files("cli/src", "rs").into_iter().chain(of_serve) {
        // `--exec` forwards the stderr of its command unchanged; the audit log escapes its lines.
        if matches!(
            name.as_str(),
            "cli/src/output.rs" | "cli/src/commands/work/exec.rs" | "serve/src/audit/log.rs"
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
