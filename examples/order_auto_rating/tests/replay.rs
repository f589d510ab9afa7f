//! Runs the example order_auto_rating as a user would: processes, SQLite, and an audit that must
//! balance.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use dueq_testkit::{Server, example};
use serde_json::{Value, json};

/// A server, a directory, and the program with a file of orders.
struct Run {
    server: Server,
    command: Command,
}

impl Run {
    fn new(orders: &str, arguments: &[&str]) -> Result<Self> {
        let server = Server::start(&[])?;
        let input = server.folder().join("orders.csv");
        std::fs::write(
            &input,
            format!("order_id,delivered_at,reviewed_at,review_score\n{orders}"),
        )?;
        let mut command = Command::new(example("order_auto_rating")?);
        command
            .arg("--json")
            .arg("--input")
            .arg(input)
            .args(arguments);
        command
            .env("REDIS_URL", server.url())
            .env("TMPDIR", server.folder());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(Self { server, command })
    }

    fn output(&mut self) -> Result<Output> {
        Ok(self.command.output()?)
    }
}

fn books(output: &Output) -> Result<Value> {
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {words}", output.status);
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("no JSON on standard output; {words}"))
}

/// Sixty orders within an hour, ten of each kind: reviewed before and at the delivery, a second
/// after it, a day after it, at exactly 48 hours, a week after it, and never.
fn sixty() -> String {
    let kinds = [
        ("2018-02-28T00:00:00", "2"),
        ("", "1"),
        ("2018-03-02T01:00:00", "3"),
        ("48 h", "4"),
        ("2018-03-08T00:00:00", "5"),
        ("", ""),
    ];
    let mut orders = String::new();
    for minute in 0..10 {
        for (kind, (reviewed_at, stars)) in kinds.iter().enumerate() {
            let reviewed_at = match (*reviewed_at, *stars) {
                ("", "1") => format!("2018-03-01T00:{minute:02}:01"),
                ("48 h", _) => format!("2018-03-03T00:{minute:02}:00"),
                (at, _) => at.to_owned(),
            };
            let _ = writeln!(
                orders,
                "o{minute}-{kind},2018-03-01T00:{minute:02}:00,{reviewed_at},{stars}"
            );
        }
    }
    orders
}

#[test]
fn books_balance_with_two_workers() -> Result<()> {
    let mut run = Run::new(&sixty(), &["--workers", "2", "--speed", "1000000"])?;
    let mut books = books(&run.output()?)?;
    let lateness = books["lateness_ms"].take();
    for name in ["p50", "p99", "p999", "max"] {
        ensure!(
            lateness[name].as_f64().is_some_and(|ms| ms >= 0.0),
            "{name}: {lateness}"
        );
    }
    // A machine that stalls for 86 ms loses races, and the audit counts them.
    let lost = books["races_lost"].as_u64().context("a number")?;
    let expected = json!({
        "orders": 60, "already_reviewed": 10, "pushed": 50, "cancelled_in_time": 20 - lost, "races_lost": lost,
        "auto_rated": 30 + lost, "replaced_by_review": 20 + lost, "disagreed": 10 + lost, "never_reviewed": 10,
        "lost": 0, "fired_twice": 0, "fired_early": 0, "lateness_ms": null,
    });
    assert_eq!(books, expected);
    Ok(())
}

#[test]
fn races_at_high_speed_are_counted_correctly() -> Result<()> {
    // 48 hours become 1 ms: claims and cancels race.
    let mut run = Run::new(&sixty(), &["--workers", "2", "--speed", "1000000000"])?;
    let books = books(&run.output()?)?;
    assert_eq!(
        [&books["lost"], &books["fired_twice"], &books["fired_early"]],
        [0, 0, 0]
    );
    Ok(())
}

#[test]
fn the_queue_is_removed_and_the_books_are_kept_where_asked() -> Result<()> {
    let mut run = Run::new(&sixty(), &[])?;
    let database = run.server.folder().join("books.sqlite");
    run.command.arg("--database").arg(&database);
    books(&run.output()?)?;
    let rows = rusqlite::Connection::open(&database)?.query_row(
        "SELECT count(*), sum(stars) FROM orders",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    assert_eq!(rows, (60, 10 * (2 + 1 + 3 + 4 + 5 + 5)));
    assert_eq!(
        run.server.command(&["DBSIZE"])?,
        ":0\r\n",
        "the queue is deleted"
    );

    let again = run.output()?;
    assert_eq!(
        again.status.code(),
        Some(1),
        "what is there is not overwritten"
    );
    ensure!(
        String::from_utf8_lossy(&again.stderr).contains("exists"),
        "and it says so"
    );
    Ok(())
}

/// The running program and its output, line by line. The output ends when the program and all its
/// workers have ended.
struct Underway {
    program: Child,
    words: Lines<BufReader<ChildStderr>>,
}

impl Underway {
    fn new(run: &mut Run) -> Result<Self> {
        let mut program = run.command.spawn()?;
        let words = BufReader::new(program.stderr.take().context("its words are piped")?).lines();
        Ok(Self { program, words })
    }

    /// Process id of the next worker that the program announces.
    fn worker(&mut self) -> Result<String> {
        let line = self
            .words
            .find(|line| !line.as_ref().is_ok_and(|line| !line.contains("is process")));
        let line = line.context("it ended without a further worker")??;
        Ok(line.rsplit(' ').next().unwrap_or_default().to_owned())
    }

    fn rest(self) -> Result<(Output, String)> {
        let words = self.words.collect::<Result<Vec<_>, _>>()?.join("\n");
        Ok((self.program.wait_with_output()?, words))
    }
}

/// Sends a signal to a process.
fn signal(name: &str, process: &str) -> Result<()> {
    let sent = Command::new("kill").args([name, process]).status()?;
    ensure!(sent.success(), "kill {name} {process}: {sent}");
    Ok(())
}

/// Polls until this many messages are acked.
fn until_acked(server: &Server, number: u64) -> Result<()> {
    let script = "local meta = redis.call('KEYS', 'dueq:*:meta')[1]
        return meta and redis.call('HGET', meta, 'acked') or '0'";
    while server
        .command(&["EVAL", script, "0"])?
        .trim()
        .parse::<u64>()
        .unwrap_or(0)
        < number
    {}
    Ok(())
}

#[test]
fn a_worker_that_is_killed_is_replaced_and_the_books_balance() -> Result<()> {
    // An hour is 36 ms.
    let mut run = Run::new(&sixty(), &["--workers", "2", "--speed", "100000"])?;
    let mut underway = Underway::new(&mut run)?;
    let (first, _second) = (underway.worker()?, underway.worker()?);
    until_acked(&run.server, 5)?;
    signal("-KILL", &first)?;
    let third = underway.worker()?;
    ensure!(third != first);
    let (output, words) = underway.rest()?;
    let books = books(&output).context(words)?;
    assert_eq!(
        [&books["orders"], &books["lost"], &books["fired_early"]],
        [60, 0, 0]
    );
    Ok(())
}

#[test]
fn workers_do_not_outlive_a_parent_that_is_killed() -> Result<()> {
    let mut run = Run::new(&sixty(), &["--workers", "2", "--speed", "1"])?;
    let mut underway = Underway::new(&mut run)?;
    for _ in 0..2 {
        underway.worker()?;
    }
    signal("-KILL", &underway.program.id().to_string())?;
    // The output ends when the last process that can write to it has ended.
    underway.rest().map(drop)
}

#[test]
fn interrupted_it_leaves_no_process_no_queue_and_no_file() -> Result<()> {
    let mut run = Run::new(&sixty(), &["--workers", "2", "--speed", "1"])?;
    let mut underway = Underway::new(&mut run)?;
    for _ in 0..2 {
        underway.worker()?;
    }
    signal("-INT", &underway.program.id().to_string())?;
    let (output, words) = underway.rest()?;
    assert_eq!(output.status.code(), Some(1));
    ensure!(words.contains("interrupted"), "{words}");
    assert_eq!(
        run.server.command(&["DBSIZE"])?,
        ":0\r\n",
        "the queue is deleted"
    );
    for file in std::fs::read_dir(run.server.folder())? {
        let name = file?.file_name();
        ensure!(!name.to_string_lossy().contains("sqlite"), "{name:?}");
    }
    Ok(())
}

#[test]
fn missing_server_is_reported() -> Result<()> {
    let mut run = Run::new(&sixty(), &[])?;
    run.server.kill()?;
    let output = run.output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    ensure!(words.contains("cannot reach redis at 127.0.0.1"), "{words}");
    Ok(())
}

#[test]
fn a_bad_file_is_refused_with_its_line_before_anything_is_done() -> Result<()> {
    let mut run = Run::new(
        "a,2018-03-01T00:00:00,,\nb,2018-03-01T00:00:00,soon,5\n",
        &[],
    )?;
    let output = run.output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words}");
    ensure!(words.contains("line 3: reviewed_at: \"soon\""), "{words}");
    ensure!(output.stdout.is_empty());
    assert_eq!(run.server.command(&["DBSIZE"])?, ":0\r\n");
    Ok(())
}
