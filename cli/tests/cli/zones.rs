//! Time zones: the program has its own rules, so the machine's rules do not change its answers.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dueq_testkit::Server;
use serde_json::Value;

use crate::serving::serve::Serve;
use crate::{DUEQ, Said};

/// Zones whose rules changed lately, or change often.
const ZONES: [&str; 3] = ["America/Vancouver", "Africa/Casablanca", "Europe/Paris"];
const DAY: &str = "2026-12-15";

/// Rules of a time zone that is always nine hours ahead, in the format of TZif files.
fn nine_hours_ahead() -> Vec<u8> {
    let mut block = b"TZif2".to_vec();
    block.extend([0; 15]);
    for count in [0_u32, 0, 0, 0, 1, 4] {
        block.extend(count.to_be_bytes());
    }
    block.extend(32_400_i32.to_be_bytes());
    block.extend(b"\0\0XST\0");
    [&block[..], &block, b"\nXST-9\n"].concat()
}

/// The answers of the program and its server, if the machine's zone rules are in this folder.
fn answers(folder: &std::path::Path) -> Result<Vec<String>> {
    let server = Server::start(&[])?;
    let (url, mut said) = (server.url(), Vec::new());
    let program = || {
        let mut command = Command::new(DUEQ);
        command.env("REDIS_URL", &url).env("TZDIR", folder);
        command
    };
    let run = |args: &[&str]| -> Result<String> {
        let output = program().args(args).output().context("dueq")?;
        ensure!(output.status.success(), "{args:?}: {}", output.err());
        Ok(output.out())
    };
    let due_ms = |id: &str| -> Result<u64> {
        let shown: Value = serde_json::from_str(&run(&["show", "q", id, "--json"])?)?;
        shown["due_ms"].as_u64().context("a due time")
    };
    let serve = Serve::start_by(program().args(["serve", "--listen", "127.0.0.1:0", "--json"]))?;
    for zone in ZONES {
        let (nine, night) = (format!("{DAY} 09:00"), format!("{DAY} 03:00"));
        let bracketed = format!("{DAY}T09:00:00[{zone}]");
        for (id, at) in [("at", &nine), ("bracketed", &bracketed), ("within", &night)] {
            let push = ["push", "q", "x", "--id", id, "--at", at];
            let more: &[_] = match id {
                "at" => &["--tz", zone],
                "within" => &["--tz", zone, "--within", "Mon-Sun 09:00-10:00"],
                _ => &[],
            };
            run(&[&push[..], more].concat())?;
        }
        let from = format!("{DAY}T00:00:00Z");
        let next = [
            "schedule",
            "next",
            "--cron",
            "0 9 * * *",
            "--zone",
            zone,
            "--from",
            &from,
        ];
        let next = run(&[&next[..], &["-n", "1", "--json"]].concat())?;
        let next: Value = serde_json::from_str(&next)?;
        let local = next["local"].as_str().context("a local time")?;
        ensure!(local.starts_with(&format!("{DAY}T09:00:00")), "{local}");
        let nominal = next["nominal_ms"].as_u64().context("a fire")?;
        for id in ["at", "bracketed", "within"] {
            assert_eq!(due_ms(id)?, nominal, "{id} in {zone}");
        }
        let path = format!("/v1/fires?cron=0%209%20*%20*%20*&zone={zone}&from={from}&count=1");
        let fires = serve.ask_with(&format!("GET {path}"), "", "")?;
        let fires = fires.lines().last().unwrap_or_default().to_owned();
        ensure!(
            fires.contains(local) && fires.contains(&nominal.to_string()),
            "{fires}"
        );
        let cookie = format!("Cookie: dueq_zone={zone}\r\n");
        let page = serve.ask_with("GET /queues/q/messages/at", &cookie, "")?;
        let shown = format!("{DAY} 09:00:00 ");
        ensure!(page.contains(&shown), "no {shown} in {zone}: {page}");
        run(&["cancel", "q", "at", "bracketed", "within"])?;
        said.extend([next.to_string(), fires]);
    }
    Ok(said)
}

#[test]
fn time_zone_rules_of_the_machine_have_no_effect() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("dueq-zones-{}", std::process::id()));
    for zone in ZONES {
        let file = folder.join(zone);
        fs::create_dir_all(file.parent().context("a folder")?)?;
        fs::write(file, nine_hours_ahead())?;
    }
    fs::write(folder.join("tzdata.zi"), "# version 2099a\n")?;
    let (with_false, without) = (answers(&folder), answers(&folder.join("none")));
    fs::remove_dir_all(&folder)?;
    assert_eq!(with_false?, without?);
    Ok(())
}
