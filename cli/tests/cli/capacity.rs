//! `dueq capacity`: what a queue needs, computed without a server.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{DUEQ, Said};

fn json(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes).context("an object")
}

/// Runs `dueq capacity` with these words; no server is there.
fn capacity(words: &str) -> Result<std::process::Output> {
    let mut command = std::process::Command::new(DUEQ);
    command.arg("capacity").args(words.split(' '));
    command
        .env("REDIS_URL", "redis://127.0.0.1:1/")
        .output()
        .context("dueq")
}

#[test]
fn plan_is_printed_with_the_source_of_its_figures() -> Result<()> {
    let output = capacity("--rate 100k/s --delay 1h --payload 100")?;
    let said = output.out();
    assert_eq!(output.code(), Some(0), "{said}");
    for words in [
        "waiting     360M messages",
        "memory      113 GB; 226 GB with 1 replica of each master",
        "masters     4: 3 by CPU",
        "4 by memory (32 GB each)",
        "servers     8 with replicas",
        "partitions  72: 5M messages wait in each",
        "commit 5fb57a2, 2026-11-22",
    ] {
        assert!(said.contains(words), "{words:?} is not in\n{said}");
    }
    Ok(())
}

#[test]
fn a_demand_beyond_memory_says_what_would_fit() -> Result<()> {
    let output = capacity("--rate 1M/s --delay 48h --payload 100")?;
    let said = output.out();
    assert_eq!(output.code(), Some(1), "{said}");
    for words in [
        "54.3 TB",
        "does not fit into memory: 1696 masters",
        "would fit   151k/s",
        "7h 14m at this rate",
    ] {
        assert!(said.contains(words), "{words:?} is not in\n{said}");
    }
    let report = json(&capacity("--rate 1M/s --delay 48h --payload 100 --json")?.stdout)?;
    assert_eq!(
        (&report["fits"], &report["reason"]),
        (&false.into(), &"memory".into())
    );
    let slower = format!(
        "--rate {} --delay 48h --payload 100 --json",
        report["fitting_rate"].as_f64().context("a rate")? * 0.999
    );
    let report = json(&capacity(&slower)?.stdout)?;
    assert_eq!(
        (&report["fits"], &report["masters"]),
        (&true.into(), &256.into()),
        "{report}"
    );
    Ok(())
}

#[test]
fn crowded_partitions_are_reported() -> Result<()> {
    let said = capacity("--rate 100k/s --delay 48h --payload 200")?.out();
    assert!(said.contains("crowded     more than 5M messages"), "{said}");
    let said = capacity("--rate 1k/s --delay 48h --payload 200")?.out();
    assert!(!said.contains("crowded"), "{said}");
    Ok(())
}

#[test]
fn own_figures_replace_those_of_dueq() -> Result<()> {
    let path = std::env::temp_dir().join(format!("dueq-{}-mine.json", std::process::id()));
    let ours = include_str!("../../../docs/performance/figures.json");
    std::fs::write(
        &path,
        ours.replace("5fb57a2", "0123abc").replace("9.4", "18.8"),
    )?;
    let mine = format!(
        "--rate 1M/s --delay 60s --payload 100 --json --figures {}",
        path.display()
    );
    let report = json(&capacity(&mine)?.stdout)?;
    assert_eq!(report["figures"]["commit"], "0123abc");
    assert!(report["masters_by_cpu"].as_u64() > Some(24), "{report}");
    std::fs::write(&path, "{}")?;
    let output = capacity(&mine)?;
    let said = output.err();
    assert_eq!(output.code(), Some(2), "{said}");
    std::fs::remove_file(&path)?;
    assert!(
        said.contains("mine.json has no figures: missing field"),
        "{said}"
    );
    Ok(())
}

#[test]
fn wrong_words_are_refused_with_the_reason() -> Result<()> {
    let good = "--rate 100k/s --delay 48h --payload 200";
    for (words, reason) in [
        (good.replace("100k/s", "0/s"), "no rate"),
        (good.replace("100k/s", "100k/week"), "no rate"),
        (good.replace("48h", "0s"), "--delay is 0"),
        (good.replace("48h", "soon"), "no delay"),
        (good.replace("200", "1GB"), "at most 16MiB"),
        (format!("{good} --memory 1KB"), "at least 1MB"),
        (format!("{good} --replicas 6"), "6"),
        (format!("{good} --batch 0"), "0"),
        (format!("{good} --cores 0"), "0"),
        (format!("{good} --figures -"), "standard input is not read"),
        (
            format!("{good} --figures /nowhere"),
            "cannot read the figures in /nowhere",
        ),
        (
            format!("{good} --figures /tmp"),
            "cannot read the figures in /tmp",
        ),
        ("--rate 100k/s --delay 48h".to_owned(), "--payload"),
    ] {
        let output = capacity(&words)?;
        let said = output.err();
        assert_eq!(output.code(), Some(2), "{words}: {said}");
        assert!(said.contains(reason), "{words}: {said}");
    }
    Ok(())
}
