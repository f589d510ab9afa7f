//! Builds the examples of the repository for the tests that run them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

/// Builds an example and returns the path of its program. `cargo test` builds examples only for
/// some choices of targets. The features are those of the whole workspace, as in `make test`, so
/// nothing is compiled twice.
pub fn example(name: &str) -> Result<PathBuf> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    if let Some(folder) = FOLDER.get() {
        return Ok(folder.join(name));
    }
    // target/PROFILE/deps/THIS-HASH
    let this = std::env::current_exe()?;
    let profile = this.ancestors().nth(2).context("no profile directory")?;
    let target = profile.parent().context("no target directory")?;
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet", "--locked", "--workspace", "--examples"])
        .arg("--target-dir")
        .arg(target);
    if profile.ends_with("release") {
        build.arg("--release");
    }
    // Cargo's variables for this test would make build scripts run again.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            build.env_remove(name);
        }
    }
    let built = build
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .status()?;
    ensure!(built.success(), "cargo build --examples: {built}");
    Ok(FOLDER.get_or_init(|| profile.join("examples")).join(name))
}
