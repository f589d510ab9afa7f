//! The examples of the repository, built for the test that runs them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

/// An example's program, built beside the test that asks. `cargo test` builds examples too, but not with every choice of
/// targets. The features are those of the whole workspace, as `make test` builds them: nothing is compiled twice.
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
    // What Cargo tells this test about its package would make build scripts run anew.
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
