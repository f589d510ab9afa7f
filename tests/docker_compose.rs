//! Checks that `docker-compose.yml` and `Dockerfile` agree and match the promises of README.
//!
//! The test reads the file by lines and indentation. A YAML parser would add two dependencies for
//! one file of 50 lines.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

fn read(file: &str) -> Result<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file))
        .with_context(|| file.to_owned())
}

/// The lines below `heading` that are indented deeper than the heading.
fn block<'a>(text: &'a str, heading: &str) -> Result<Vec<&'a str>> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = text.lines().skip_while(|line| *line != heading);
    let first = lines
        .next()
        .with_context(|| format!("no line {heading:?}"))?;
    let block: Vec<&str> = lines
        .take_while(|line| line.is_empty() || indent(line) > indent(first))
        .collect();
    ensure!(!block.is_empty(), "nothing below {heading:?}");
    Ok(block)
}

#[test]
fn server_persists_and_never_evicts() -> Result<()> {
    let file = read("docker-compose.yml")?;
    let redis = block(&file, "  redis:")?;
    let command = redis.iter().find(|line| line.starts_with("    command: "));
    let command = command.context("the command of redis")?;
    ensure!(command.contains("--appendonly yes"), "{command}");
    ensure!(
        command.contains("--maxmemory-policy noeviction"),
        "{command}"
    );
    ensure!(
        redis.contains(&"      - redis:/data"),
        "no volume: {redis:?}"
    );
    ensure!(
        redis.contains(&"    healthcheck:"),
        "no health check: {redis:?}"
    );
    ensure!(
        block(&file, "volumes:")?.contains(&"  redis:"),
        "the volume is not declared"
    );
    Ok(())
}

#[test]
fn ports_are_published_on_loopback_only() -> Result<()> {
    let file = read("docker-compose.yml")?;
    let lines: Vec<&str> = file.lines().collect();
    let mut count = 0;
    for (at, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.trim() == "ports:")
    {
        let indent = line.len() - line.trim_start().len();
        let item = format!("{}- ", " ".repeat(indent + 2));
        for port in lines[at + 1..]
            .iter()
            .map_while(|line| line.strip_prefix(&item))
        {
            ensure!(port.starts_with("\"127.0.0.1:"), "{port}");
            count += 1;
        }
    }
    ensure!(count > 0, "no port: this test looks in the wrong place");
    Ok(())
}

#[test]
fn dockerfile_builds_what_the_services_name() -> Result<()> {
    let (file, dockerfile) = (read("docker-compose.yml")?, read("Dockerfile")?);
    let stages: Vec<&str> = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("FROM ")?.split(" AS ").nth(1))
        .collect();
    for service in ["worker", "shell"] {
        let lines = block(&file, &format!("  {service}:"))?;
        let target = lines
            .iter()
            .find_map(|line| line.strip_prefix("      target: "));
        let target = target.with_context(|| format!("{service} has no target"))?;
        ensure!(
            stages.contains(&target),
            "{service}: no stage {target} among {stages:?}"
        );
        let waits = ["      redis:", "        condition: service_healthy"];
        ensure!(
            lines.windows(2).any(|pair| pair == waits),
            "{service} does not wait for redis"
        );
    }
    for copied in dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("COPY ")?.split(' ').next())
    {
        let exists = Path::new(env!("CARGO_MANIFEST_DIR")).join(copied).exists();
        ensure!(copied.starts_with("--from=") || exists, "{copied}");
    }
    Ok(())
}
