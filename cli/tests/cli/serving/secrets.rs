//! No output, log, error or process title contains a password, at any log level.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use dueq_testkit::Server;

use crate::{DUEQ, Said, text};

const SECRET: &str = "hunter2hunter2";
/// A password of its own, because other tests put theirs on command lines.
const TITLE: &str = "correct-horse-battery";

/// Runs the program with the full log, and checks that no output contains the secret.
fn silent(url: &str, by_flag: bool, args: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(DUEQ);
    command.env("RUST_LOG", "trace").stdin(Stdio::null());
    if by_flag {
        command.args(["--redis", url]);
    } else {
        command.env("REDIS_URL", url);
    }
    let output = command.args(args).output()?;
    let said = output.out() + &output.err();
    ensure!(!said.contains(SECRET), "{args:?} at {url}: {said}");
    Ok((output.code(), said))
}

#[test]
fn output_and_logs_never_contain_the_password() -> Result<()> {
    let server = Server::start(&["--requirepass", SECRET])?;
    let port = server.port();
    let sentinel = format!(
        "redis+sentinel://me:{SECRET}@127.0.0.1:1/s?sentinel_user=u&sentinel_password={SECRET}"
    );
    for (url, code) in [
        (format!("redis://:{SECRET}@127.0.0.1:{port}/"), 0),
        (format!("redis://nobody:{SECRET}@127.0.0.1:{port}/"), 1),
        (format!("redis://:{SECRET}x@127.0.0.1:{port}/"), 1),
        (format!("redis://:{SECRET}@127.0.0.1:1/"), 1),
        (format!("redis://:{SECRET}@127.0.0.1:99999/"), 2),
        (format!("redis://:{SECRET}@/nine"), 2),
        (format!("rediss://:{SECRET}@127.0.0.1:{port}/"), 1),
        (format!("rediss://:{SECRET}@127.0.0.1:{port}/#insecure"), 2),
        (
            format!("redis+unix:///absent/socket?user=me&pass={SECRET}"),
            1,
        ),
        (format!("redis+sentinel://me:{SECRET}@/"), 2),
        (sentinel, 1),
    ] {
        for (by_flag, json) in [(false, "text"), (true, "json")] {
            let (found, said) = silent(
                &url,
                by_flag,
                &["push", "q", "x", "--delay", "1h", "--log", json],
            )?;
            assert_eq!(found, Some(code), "{said}");
        }
        silent(&url, true, &["import", "redisson", "q", "--from", &url])?;
        // Wrong usage, help, and an unknown command.
        for args in [
            &["push", "q", "x", "--delay", "x"][..],
            &["push", "--help"],
            &["nothing"],
            &["stats", "--nothing"],
        ] {
            silent(&url, true, args)?;
            silent(&url, false, args)?;
        }
    }
    let url = format!("redis://:{SECRET}@127.0.0.1:{port}/");
    for args in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["stats"],
        &["show", "q", "x"],
        &["functions", "load"],
        &["ls", "q"],
    ] {
        silent(&url, false, args)?;
    }
    Ok(())
}

/// All users of a machine can read command lines; only the owner of a process can read its
/// environment.
#[test]
fn process_titles_never_contain_the_password() -> Result<()> {
    if !std::path::Path::new("/proc/self/cmdline").exists() {
        eprintln!("SKIPPED: this system has no /proc");
        return Ok(());
    }
    let server = Server::start(&["--requirepass", TITLE])?;
    let url = format!("redis://:{TITLE}@127.0.0.1:{}/", server.port());
    let mut work = Command::new(DUEQ)
        .args(["work", "q", "--exec", "ps -e -o args="])
        .env("REDIS_URL", &url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    // The command lists the process titles of the program, of its guard and of itself.
    let push = Command::new(DUEQ)
        .args(["push", "q", "x"])
        .env("REDIS_URL", &url)
        .output()?;
    assert!(push.status.success(), "{}", push.err());
    let mut titles = String::new();
    let mut out = std::io::BufReader::new(work.stdout.take().context("its output")?);
    while !titles.contains("dueq-guard")
        || !titles.contains("work q --exec")
        || !titles.contains("ps -e")
    {
        ensure!(
            std::io::BufRead::read_line(&mut out, &mut titles)? > 0,
            "it ended: {titles}"
        );
    }
    let lines: Vec<&str> = titles.lines().filter(|line| line.contains(TITLE)).collect();
    // The test itself has put the password on the command line of the Redis server.
    assert!(
        lines
            .iter()
            .all(|line| line.contains("--requirepass") || line.contains("-server")),
        "{lines:?}"
    );
    let own = std::fs::read(format!("/proc/{}/cmdline", work.id()))?;
    assert!(!text(&own).contains(TITLE));
    Command::new("kill")
        .args(["-INT", &work.id().to_string()])
        .status()?;
    // Read to the end, because a full pipe would block the command.
    std::io::copy(&mut out, &mut std::io::sink())?;
    assert_eq!(work.wait()?.code(), Some(0));
    Ok(())
}

/// The worker reads the password from a file, the producer by a command.
#[test]
fn renewed_password_needs_no_restart() -> Result<()> {
    let server = Server::start(&[])?;
    let file = std::env::temp_dir().join(format!("dueq-test-password-{}", std::process::id()));
    let renew = |password: &str| -> Result<()> {
        let rights = ["~*", "&*", "+@all"];
        let user = [
            "ACL",
            "SETUSER",
            "me",
            "on",
            "resetpass",
            &format!(">{password}"),
        ];
        server.command(&[&user, &rights[..]].concat())?;
        std::fs::write(&file, format!("{password}\n"))?;
        server.command(&["CLIENT", "KILL", "USER", "me"])?;
        Ok(())
    };
    renew("hunter1")?;
    let url = format!("redis://me@127.0.0.1:{}/", server.port());
    let mut worker = Command::new(DUEQ)
        .args(["work", "q", "--print", "--lease", "1s"])
        .env("REDIS_URL", &url)
        .env("DUEQ_REDIS_PASSWORD_FILE", &file)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(worker.stdout.take().context("no output")?).lines();
    for password in ["hunter2", "hunter3"] {
        let output = Command::new(DUEQ)
            .args(["push", "q", password, "--redis", &url])
            .args([
                "--redis-password-command",
                &format!("cat {}", file.display()),
            ])
            .output()?;
        ensure!(output.status.success(), "{}", output.err());
        while !lines
            .next()
            .context("the worker ended")??
            .contains(password)
        {}
        renew(password)?;
    }
    drop((worker.kill(), worker.wait()));
    for (args, why) in [
        (["--redis-password-command", "exit 3"], "exit status: 3"),
        (["--redis-password-command", "true"], "printed nothing"),
        (["--redis-password-file", "/absent"], "cannot read /absent"),
    ] {
        let output = Command::new(DUEQ)
            .args(["push", "q", "x", "--redis", &url])
            .args(args)
            .output()?;
        let said = output.err();
        ensure!(output.code() == Some(2) && said.contains(why), "{said}");
    }
    std::fs::remove_file(file)?;
    Ok(())
}
