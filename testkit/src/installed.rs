//! Programs that some tests put beside dueq, such as proxies.

use std::path::{Path, PathBuf};

/// The path of a program: that of the variable `DUEQ_NAME`, such as `DUEQ_NGINX`, which `.ci/run`
/// sets; or a place where packages put it. Without the program it prints which tests are skipped.
pub fn installed(name: &str) -> Option<PathBuf> {
    let given = std::env::var_os(format!("DUEQ_{}", name.to_uppercase()));
    let folders = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    let places = folders.map(|folder| Path::new(folder).join(name));
    let found = given
        .map(PathBuf::from)
        .or_else(|| places.into_iter().find(|place| place.exists()));
    if found.is_none() {
        eprintln!("SKIPPED: what needs {name}: `apt-get install {name}` installs it");
    }
    found
}
