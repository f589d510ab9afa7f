//! Checks that `docker-compose.yml` and `Dockerfile` agree and match the promises of README.
//!
//! The test reads the file by lines and indentation. A YAML parser would add two dependencies for
//! one file.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq_testkit::Port;

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
fn dockerfile_builds_the_program_that_the_services_name() -> Result<()> {
    let (file, dockerfile) = (read("docker-compose.yml")?, read("Dockerfile")?);
    let stages: Vec<&str> = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("FROM ")?.split(" AS ").nth(1))
        .collect();
    // A service with the anchor has its lines, too.
    let shared = block(&file, "x-dueq: &dueq")?;
    for service in ["worker", "serve", "shell"] {
        let lines = block(&file, &format!("  {service}:"))?;
        let of_anchor = lines.contains(&"    <<: *dueq").then_some(&shared);
        let target = lines
            .iter()
            .chain(of_anchor.into_iter().flatten())
            .find_map(|line| line.trim_start().strip_prefix("target: "));
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
    let mounted = file.lines().filter_map(|line| {
        let (host, _) = line.trim_start().strip_prefix("- ./")?.split_once(':')?;
        Some(host)
    });
    for path in mounted {
        let exists = Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists();
        ensure!(exists, "{path} is mounted and does not exist");
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

/// A shell that ends with all of its children.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.0.wait();
    }
}

/// Runs the command of the service here, on other ports, because there may be no Docker.
#[test]
fn cluster_command_forms_a_cluster_and_ends_by_sigterm() -> Result<()> {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        println!("SKIPPED: redis-cli is not installed");
        return Ok(());
    }
    let file = read("docker-compose.yml")?;
    let cluster = block(&file, "  cluster:")?;
    ensure!(cluster.contains(&"      - \"127.0.0.1:7001-7006:7001-7006\""));
    let script = block(&file, "      - |")?.join("\n").replace("$$", "$");
    let ports = (0..6)
        .map(|_| Port::reserve())
        .collect::<Result<Vec<_>>>()?;
    let mut script = script.replace("redis-server", &dueq_testkit::program()?.to_string_lossy());
    for (place, port) in ports.iter().enumerate() {
        let published = (7_001 + place).to_string();
        ensure!(script.contains(&published), "no port {published}: {script}");
        script = script.replace(&published, &port.number().to_string());
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compose-cluster");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let shell = Command::new("sh")
        .args(["-ec", &script])
        .current_dir(&folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let mut shell = Shell(shell);
    let (begun, last) = (Instant::now(), ports[5].number());
    let formed = || {
        let ask = |words: &[&str]| dueq_testkit::command(last, words).unwrap_or_default();
        ask(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
            && ask(&["INFO", "replication"]).contains("master_link_status:up")
    };
    while !formed() {
        let limit = Duration::from_secs(60);
        ensure!(begun.elapsed() < limit, "no cluster within {limit:?}");
        ensure!(shell.0.try_wait()?.is_none(), "the command has ended");
        std::thread::sleep(Duration::from_millis(100));
    }
    let pid = shell.0.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status()?;
    let asked = Instant::now();
    while shell.0.try_wait()?.is_none() {
        let limit = Duration::from_secs(60);
        ensure!(asked.elapsed() < limit, "it still runs after {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(dueq_testkit::command(last, &["PING"]).is_err(), "it runs");
    Ok(())
}
