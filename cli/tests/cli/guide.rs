//! The shell lines of README and docs/guide that a reader pastes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dueq_testkit::Server;

use crate::{DUEQ, Said, Work};

const README: &str = include_str!("../../../README.md");
const QUICK_START: &str = include_str!("../../../docs/guide/quick-start.md");
const CLI: &str = include_str!("../../../docs/guide/cli.md");
const DEPLOYMENT: &str = include_str!("../../../docs/guide/deployment.md");
const TROUBLESHOOTING: &str = include_str!("../../../docs/guide/troubleshooting.md");

/// The shell blocks of a page.
fn shell_blocks(page: &str) -> Vec<&str> {
    page.split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect()
}

/// The shell lines below a heading.
fn shell_lines(page: &str, heading: &str) -> Result<String> {
    let section = page
        .split(heading)
        .nth(1)
        .with_context(|| format!("no heading {heading}"))?;
    Ok(shell_blocks(section.split("\n## ").next().unwrap_or(section)).concat())
}

/// Runs shell lines with `dueq` and a `redis-cli` that uses this server; returns what they print.
/// `None` if this machine has no redis-cli.
fn run(server: &Server, folder: &Path, lines: &str) -> Result<Option<String>> {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        return Ok(None);
    }
    // The lines name no server, so redis-cli must be told this server's port.
    let bin = server.folder().join("bin");
    fs::create_dir_all(&bin)?;
    let (cli, path) = (bin.join("redis-cli"), std::env::var("PATH")?);
    fs::write(
        &cli,
        format!(
            "#!/bin/sh\nPATH='{path}' exec redis-cli -p {} \"$@\"\n",
            server.port()
        ),
    )?;
    fs::set_permissions(&cli, fs::Permissions::from_mode(0o755))?;
    let program = Path::new(DUEQ).parent().context("a folder")?.display();
    let output = Command::new("sh")
        .args(["-ec", lines])
        .current_dir(folder)
        .env("PATH", format!("{}:{program}:{path}", bin.display()))
        .env("REDIS_URL", server.url())
        .output()?;
    let printed = format!("{}{}", output.out(), output.err());
    ensure!(output.status.success(), "{lines}\n{printed}");
    Ok(Some(printed))
}

/// The root folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn redis_cli_push_of_quick_start_is_delivered() -> Result<()> {
    let server = Server::start(&[])?;
    let lines = shell_lines(QUICK_START, "## The same push from redis-cli")?;
    let Some(printed) = run(&server, &root(), &lines)? else {
        return Ok(());
    };
    assert_eq!(printed.matches("CREATED").count(), 2, "{printed}");
    let mut work = Work::start(&server, "orders")?;
    // Messages that are due together are printed in any order.
    let mut ids = [work.delivery()?, work.delivery()?].map(|delivery| delivery["id"].to_string());
    ids.sort();
    assert_eq!(ids, ["\"order:42\"", "\"order:43\""]);
    assert_eq!(work.stop()?, Some(0));
    Ok(())
}

/// Runs every command of these pages, in the order of the pages.
#[test]
fn every_command_of_the_guide_succeeds() -> Result<()> {
    for page in [CLI, DEPLOYMENT, TROUBLESHOOTING] {
        let server = Server::start(&[])?;
        // The doctor reports that the test's server keeps no file; silence that.
        run(
            &server,
            server.folder(),
            "redis-cli CONFIG SET appendonly yes; dueq push orders 42 --delay 48h",
        )?;
        let blocks = shell_blocks(page);
        assert!(!blocks.is_empty(), "the page has no commands");
        for block in blocks
            .into_iter()
            .filter(|block| !block.contains("rediss://"))
        {
            run(&server, server.folder(), block)?;
        }
    }
    Ok(())
}

#[test]
fn pages_install_the_program_before_its_first_use() {
    for (page, first_use) in [
        (README, "dueq push"),
        (QUICK_START, "dueq dev"),
        (QUICK_START, "dueq functions load"),
    ] {
        let install = page
            .find("cargo install --path cli")
            .expect("how to install");
        assert!(
            install < page.find(first_use).expect("the first use"),
            "{first_use}"
        );
    }
}
