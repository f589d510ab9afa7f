//! Writes and checks the vectors of `clients/vectors`: what this library makes of inputs that each
//! client library must treat alike. A vector is one line of JSON with the input and the result.
//!
//! `DUEQ_WRITE_VECTORS=1 cargo test --package dueq --lib vectors` writes the files again.

mod produced;
mod promised;
mod replies;
mod routes;
mod shared;

use std::path::PathBuf;

#[test]
fn client_vectors_are_what_this_library_does() {
    let files = [
        ("routing", routes::routing()),
        ("keys", routes::keys()),
        ("maps", routes::maps()),
        ("errors", produced::errors()),
        ("messages", produced::messages()),
        ("results", produced::results()),
        ("verdicts", produced::verdicts()),
        ("replies", replies::replies()),
        ("changes", promised::changes()),
        ("waits", promised::waits()),
        ("schedules", promised::schedules()),
    ];
    for (name, lines) in files {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("clients/vectors");
        let path = folder.join(format!("{name}.jsonl"));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        if std::env::var_os("DUEQ_WRITE_VECTORS").is_some() {
            std::fs::write(&path, &text).expect("the vectors can be written");
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == text,
            "{path:?} is out of date: set DUEQ_WRITE_VECTORS=1, and run every client"
        );
    }
}
