//! The lines of README.md that a person pastes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context, Result};
use dueq_testkit::Server;

use crate::{DUEQ, Work, text};

const README: &str = include_str!("../../../README.md");

/// The shell lines below a heading.
fn shell_lines(heading: &str) -> Result<String> {
    let section = README
        .split(heading)
        .nth(1)
        .with_context(|| format!("no heading {heading}"))?;
    let section = section.split("\n## ").next().unwrap_or(section);
    let blocks: Vec<&str> = section
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    Ok(blocks.concat())
}

#[test]
fn the_push_from_redis_cli_runs_as_it_is_printed() -> Result<()> {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        return Ok(()); // Nobody could paste the lines here.
    }
    let server = Server::start(&[])?;
    // The lines name no server: theirs is the one at hand.
    let folder = server.folder().join("bin");
    fs::create_dir_all(&folder)?;
    let cli = folder.join("redis-cli");
    let path = std::env::var("PATH")?;
    fs::write(
        &cli,
        format!(
            "#!/bin/sh\nPATH='{path}' exec redis-cli -p {} \"$@\"\n",
            server.port()
        ),
    )?;
    fs::set_permissions(&cli, fs::Permissions::from_mode(0o755))?;
    let bin = std::path::Path::new(DUEQ)
        .parent()
        .context("a folder")?
        .display();
    let lines = shell_lines("## The same push from redis-cli")?;
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = Command::new("sh")
        .args(["-ec", &lines])
        .current_dir(root)
        .env("PATH", format!("{}:{bin}:{path}", folder.display()))
        .env("REDIS_URL", server.url())
        .output()?;
    let said = text(&output.stdout);
    assert_eq!(
        said.matches("CREATED").count(),
        2,
        "{said}{}",
        text(&output.stderr)
    );
    let mut work = Work::start(&server, "orders")?;
    assert_eq!(
        (&work.delivery()?["id"], &work.delivery()?["id"]),
        (&"order:42".into(), &"order:43".into())
    );
    assert_eq!(work.stop()?, Some(0));
    Ok(())
}

#[test]
fn the_readme_says_how_to_get_the_program() {
    let install = README
        .find("cargo install --path cli")
        .expect("how to install");
    assert!(
        install < README.find("dueq functions load").expect("the first use"),
        "it comes before the first use"
    );
}
