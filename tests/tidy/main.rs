//! Checks the invariants of ARCHITECTURE.md that the text of the files shows.

mod circles;
mod examples;
mod format;
mod imports;
mod names;
mod pages;
mod program;
mod reader;
mod scripts;
mod settings;

use std::fs;
use std::path::{Path, PathBuf};

/// Text of the file at this path from the root of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file with this extension below a folder of the repository: path from the root and text.
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
        "no .{extension} files below {folder}: the test searches the wrong folder"
    );
    found.sort();
    found
}

/// The code of a file without its comments and its modules of unit tests.
fn code(text: &str) -> String {
    let is_module = |line: &&str| {
        let line = line.trim_start_matches("pub(crate) ");
        line.starts_with("mod ") && line.ends_with('{')
    };
    let (mut code, mut lines) = (String::new(), text.lines().peekable());
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" && lines.peek().is_some_and(is_module) {
            lines.by_ref().find(|line| *line == "}");
        } else if !line.trim_start().starts_with("//") {
            code.extend([line, "\n"]);
        }
    }
    code
}
