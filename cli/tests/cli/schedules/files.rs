//! Files with faults for `dueq schedule apply`: each fault is reported with its line, and nothing
//! is changed.

use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result};
use dueq_testkit::Server;

use crate::{Said, command};

/// Applies this text from standard input. Returns the exit code and the output.
fn apply(server: &Server, toml: &str) -> Result<(Option<i32>, String)> {
    let mut apply = command(server)
        .args([
            "schedule", "apply", "reports", "-", "--set", "billing", "--prune",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = apply.stdin.take().context("its input")?;
    stdin.write_all(toml.as_bytes())?;
    drop(stdin);
    let output = apply.wait_with_output()?;
    Ok((output.code(), output.err()))
}

#[test]
fn each_fault_has_its_line_and_nothing_is_changed() -> Result<()> {
    let server = Server::start(&[])?;
    let cron = "cron = \"0 2 * * *\"\nzone = \"UTC\"";
    for (lines, line, reason) in [
        ("every = \"5ms\"", 3, "10 ms to 100 years"),
        ("every = \"5 apples\"", 3, "no delay"),
        ("every = \"-1h\"", 3, "longer than 0"),
        ("every = 15", 3, "write a number and a unit in quotes"),
        ("every = \"1h\"\njiter = \"1s\"", 4, "did you mean jitter?"),
        (
            "every = \"1h\"\nzone = \"UTC\"",
            4,
            "every has no time zone",
        ),
        (
            "every = \"1h\"\njitter = \"1h\"",
            4,
            "jitter is 3600s, it must be less than",
        ),
        ("every = \"1h\"\nlimit = 0", 4, "limit is 0"),
        ("every = \"1h\"\nlimit = -1", 4, "limit is -1"),
        ("every = \"1h\"\nlimit = \"9\"", 4, "without quotes"),
        (
            "every = \"1h\"\nmissed = \"two\"",
            4,
            "\"one\", \"skip\", \"all\"",
        ),
        ("every = \"1h\"\nmax = 5", 4, "without missed = \"all\""),
        (
            "every = \"1h\"\nmissed = \"all\"\nmax = 100001",
            4,
            "max of missed=all is 100001",
        ),
        (
            "every = \"1h\"\noverlap = \"wait\"",
            4,
            "\"allow\", \"skip\", \"replace\"",
        ),
        ("every = \"1h\"\nwithin = \"0s\"", 4, "longer than 0"),
        ("every = \"1h\"\nmax_attempts = 0", 4, "max_attempts is 0"),
        ("every = \"1h\"\non_expire = \"drop\"", 4, "without expires"),
        ("every = \"1h\"\nstart = 2026-12-01", 4, "with its offset"),
        (
            "every = \"1h\"\nstart = 2027-01-01T00:00:00Z\nend = 2026-01-01T00:00:00Z",
            5,
            "is before start",
        ),
        ("every = \"1h\"\npayload = 5", 4, "write it in quotes"),
        (
            "every = \"1h\"\npayload = \"a\"\npayload_json = 5",
            5,
            "leave out one",
        ),
        ("every = \"1h\"\ncron = \"0 2 * * *\"", 1, "every and cron"),
        ("payload = \"a\"", 1, "it has no rule"),
        ("cron = \"0 2 * * *\"", 3, "needs a time zone"),
        (
            "cron = \"61 2 * * *\"\nzone = \"UTC\"",
            3,
            "no cron pattern",
        ),
        ("cron = \"0 0 30 2 *\"\nzone = \"UTC\"", 3, "ten years"),
        ("cron = \"0 2 * * *\"\nzone = \"CET\"", 4, "abbreviations"),
        ("cron = \"0 2 * * *\"\nzone = \"+02:00\"", 4, "offsets"),
        (
            &format!("{cron}\nanchor = 2026-12-01T00:00:00Z"),
            5,
            "has no anchor",
        ),
        (&format!("{cron}\njitter = \"1d\""), 5, "jitter is 86400s"),
        ("every = ", 3, "string values must be quoted"),
        (
            &format!("every = \"1h\"\npayload = \"{}\"", "x".repeat(1_048_577)),
            2,
            "1048577 bytes exceeds",
        ),
    ] {
        let good = "[[schedule]]\nname = \"good\"\nevery = \"1h\"\n";
        let toml = format!("[[schedule]]\nname = \"bad\"\n{lines}\n{good}");
        let (code, said) = apply(&server, &toml)?;
        let shown: String = said.chars().take(1_000).collect();
        assert_eq!(code, Some(2), "{lines:.100}: {shown}");
        assert!(
            shown.contains(&format!("standard input:{line}: ")) && shown.contains(reason),
            "{lines:.100}: {shown}"
        );
    }
    for (toml, reason) in [
        ("", "has no [[schedule]]"),
        (
            "[[schedules]]\nname = \"a\"",
            ":1: there is no key \"schedules\": did you mean schedule?",
        ),
        ("schedule = 5", ":1: schedule is no list"),
        (
            "[[schedule]]\nevery = \"1h\"",
            ":1: the schedule has no name",
        ),
        (
            "[[schedule]]\nname = \"a b\"\nevery = \"1h\"",
            ":2: schedule \"a b\": the name of a schedule",
        ),
        (
            "[[schedule]]\nname = \"a\"\nevery = \"1h\"\n[[schedule]]\nname = \"a\"\nevery = \"2h\"",
            ":5: schedule \"a\": line 2 declares a schedule of this name",
        ),
    ] {
        let (code, said) = apply(&server, toml)?;
        assert_eq!(code, Some(2), "{toml}: {said}");
        assert!(said.contains(reason), "{toml}: {said}");
    }
    assert_eq!(server.command(&["DBSIZE"])?, ":0\r\n");
    Ok(())
}

#[test]
fn all_faults_of_a_file_are_reported_at_once() -> Result<()> {
    let server = Server::start(&[])?;
    let toml = "[[schedule]]\nname = \"a\"\nevery = \"1ms\"\nlimit = true\n[[schedule]]\nname = \"b\"\nevery = \"1h\"\njitter = \"2h\"\nlimit = 0\n";
    let (code, said) = apply(&server, toml)?;
    assert_eq!(code, Some(2), "{said}");
    for line in [
        "dueq: standard input:3: schedule \"a\": every is 1ms",
        "dueq: standard input:4: schedule \"a\": limit is a boolean",
        "dueq: standard input:8: schedule \"b\": jitter is 7200s",
        "dueq: standard input:9: schedule \"b\": limit is 0",
        "dueq: standard input has 4 faults: nothing was changed",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    Ok(())
}

#[test]
fn schedule_of_another_set_and_partitions_are_refused() -> Result<()> {
    let server = Server::start(&[])?;
    let toml = "[[schedule]]\nname = \"a\"\nevery = \"1h\"\n";
    assert_eq!(apply(&server, toml)?.0, Some(0));
    let mut other = command(&server);
    other.args([
        "schedule",
        "apply",
        "reports",
        "/dev/stdin",
        "--set",
        "other",
    ]);
    let mut other = other.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    other
        .stdin
        .take()
        .context("its input")?
        .write_all(toml.as_bytes())?;
    let output = other.wait_with_output()?;
    let said = output.err();
    assert_eq!(output.code(), Some(2), "{said}");
    assert!(said.contains("belongs to the set billing"), "{said}");

    let server = Server::start(&[])?;
    assert!(
        command(&server)
            .args(["partitions", "reports", "4"])
            .output()?
            .status
            .success()
    );
    let (code, said) = apply(&server, toml)?;
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("a queue of several partitions has no schedules"),
        "{said}"
    );
    Ok(())
}

#[test]
fn schedules_that_the_server_refuses_have_their_lines() -> Result<()> {
    let server = Server::start(&[])?;
    let theirs =
        "[[schedule]]\nname = \"b\"\nevery = \"1h\"\n[[schedule]]\nname = \"c\"\nevery = \"1h\"\n";
    assert_eq!(apply(&server, theirs)?.0, Some(0));
    let folder = std::env::temp_dir().join(format!("dueq-refused-{}", server.port()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("ours.toml");
    std::fs::write(
        &file,
        "# ours\n[[schedule]]\nname = \"a\"\nevery = \"1h\"\n\n[[schedule]]\nevery = \"2h\"\nname = \"b\"\n\n\
         [[schedule]]\nname = \"c\"\nevery = \"2h\"\n",
    )?;
    let output = command(&server)
        .args(["schedule", "apply", "reports"])
        .arg(&file)
        .args(["--set", "ours"])
        .output();
    std::fs::remove_dir_all(&folder)?;
    let output = output?;
    let said = output.err();
    assert_eq!(output.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty(), "{}", output.out());
    let file = file.display();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            format!("dueq: {file}:8: schedule \"b\": b belongs to the set billing"),
            format!("dueq: {file}:11: schedule \"c\": c belongs to the set billing"),
            format!("dueq: {file} has 2 faults: nothing was changed"),
        ]
    );
    let listed = command(&server)
        .args(["schedule", "ls", "reports"])
        .output()?;
    let listed = listed.out();
    assert!(!listed.contains("ours"), "{listed}");
    Ok(())
}
