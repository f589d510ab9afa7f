//! The preloaded library that steps a process's wall clock and fills its disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const SOURCE: &str = include_str!("../../shim/shim.c");

/// Compiles the library into a folder.
pub fn compile(folder: &Path) -> Result<PathBuf> {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    std::fs::write(&source, SOURCE)?;
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl")
        .status()
        .context("cc, a C compiler, is needed")?;
    ensure!(compiled.success(), "cc: {compiled}");
    Ok(library)
}

/// The settings of one process's shim, in a file that the library maps into memory.
#[derive(Debug)]
pub struct Control {
    file: File,
    environment: [(String, String); 2],
}

impl Control {
    pub fn new(library: &Path, path: &Path) -> Result<Self> {
        let file = File::options().write(true).create_new(true).open(path)?;
        file.write_all_at(&[0; 16], 0)?;
        let text = |path: &Path| {
            path.to_str()
                .map(str::to_owned)
                .context("a path that is not UTF-8")
        };
        let environment = [
            ("LD_PRELOAD".to_owned(), text(library)?),
            ("DUEQ_SHIM".to_owned(), text(path)?),
        ];
        Ok(Self { file, environment })
    }

    /// The environment variables for the process.
    pub fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// Sets how far the wall clock of the process is off.
    pub fn set_clock(&self, offset_ms: i64) -> Result<()> {
        Ok(self
            .file
            .write_all_at(&(offset_ms * 1_000).to_ne_bytes(), 0)?)
    }

    pub fn set_disk_full(&self, full: bool) -> Result<()> {
        Ok(self.file.write_all_at(&i64::from(full).to_ne_bytes(), 8)?)
    }
}
