//! `dueq import redisson`, on keys that a real Redisson wrote (see `redisson/README.md`).

mod capture;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dueq::MessageState;
use dueq_testkit::Server;
use serde_json::Value;

use self::capture::{
    CURRENT, LONG_AHEAD_MS, OLD, counts, delayed, digest, dueq, get, import, load, queue, store,
};

#[tokio::test]
async fn import_keeps_redissons_ids_due_times_and_payloads() -> Result<()> {
    for (capture, id_at) in [(CURRENT, 1), (OLD, 0)] {
        let server = load(capture)?;
        let before = digest(&server, capture)?;
        for (name, tagged, count) in [
            ("text", "{text}", 14),
            ("json", "{json}", 20),
            ("default", "{default}", 20),
            ("java", "{java}", 20),
            ("{tagged}:text", "{tagged}:text", 14),
        ] {
            let into = name.trim_start_matches("{tagged}:");
            let into = format!("from {into} {}", name.len());
            let (report, code) = import(&server, &[name, "--into", &into])?;
            assert_eq!(
                (counts(&report), code),
                ([count + 3, count + 3, 0, 0], Some(0)),
                "{name}: {report}"
            );
            let (queue, delayed) = (
                queue(&server, &into).await?,
                delayed(capture, tagged, id_at),
            );
            assert_eq!(delayed.len() as u64, count);
            for (id, due_ms, value) in delayed {
                let stored = get(&queue, &id).await?;
                assert_eq!(
                    (stored.state, &stored.payload),
                    (MessageState::Scheduled, &value),
                    "{name}, {id}"
                );
                // A due time in the past becomes now.
                assert!(
                    stored.time_ms >= due_ms
                        && (stored.time_ms == due_ms || due_ms < LONG_AHEAD_MS),
                    "{stored:?}"
                );
            }
            assert_eq!(queue.stats().await?.scheduled, count + 3);
        }
        assert_eq!(
            digest(&server, capture)?,
            before,
            "Redisson's keys are only read"
        );
    }
    Ok(())
}

#[tokio::test]
async fn string_and_json_codecs_convert_payloads() -> Result<()> {
    let server = load(CURRENT)?;
    assert_eq!(import(&server, &["text", "--codec", "string"])?.1, Some(0));
    assert_eq!(import(&server, &["json", "--codec", "json"])?.1, Some(0));
    let mut found = BTreeMap::<String, usize>::new();
    for (name, ids) in [
        ("text", delayed(CURRENT, "{text}", 1)),
        ("json", delayed(CURRENT, "{json}", 1)),
    ] {
        let queue = queue(&server, name).await?;
        for (id, ..) in ids {
            let payload = String::from_utf8(get(&queue, &id).await?.payload)?;
            *found.entry(format!("{name} {payload}")).or_default() += 1;
        }
    }
    let order = r#"{"buyer":"Zoë \uD83D\uDE00","id":42,"key":"00000000-0000-0001-0000-000000000002","lines":["a",7,{"sku":"x-1"}],"more":{"zip":4051},"paid":1700000000000,"parts":[1,2,3],"price":19.90,"tags":["gift","für morgen"]}"#;
    let text = ["order:42", "für morgen 😀\n", "", "{\"a\": 1}", "tail"]
        .map(|text| (format!("text {text}"), 2));
    let json = [
        "\"order:42\"",
        "\"für morgen \\uD83D\\uDE00\\n\"",
        "\"\"",
        order,
        "7",
        "2.5",
        "true",
        "[1,2]",
    ];
    let json = json.map(|json| (format!("json {json}"), 2));
    let same = [("text same".to_owned(), 4), ("json \"same\"".to_owned(), 4)];
    let expected: BTreeMap<_, _> = text.into_iter().chain(json).chain(same).collect();
    assert_eq!(found, expected);
    Ok(())
}

#[tokio::test]
async fn repeated_import_creates_nothing_even_after_handling() -> Result<()> {
    let server = load(CURRENT)?;
    assert_eq!(
        counts(&import(&server, &["text", "--dry-run"])?.0),
        [17, 17, 0, 0]
    );
    assert!(
        server.command(&["KEYS", "dueq*"])?.starts_with("*0"),
        "a dry run writes nothing"
    );
    assert_eq!(counts(&import(&server, &["text"])?.0), [17, 17, 0, 0]);
    assert_eq!(counts(&import(&server, &["text"])?.0), [17, 0, 17, 0]);

    // A worker handles the due messages: three of the destination list, and seven that became due
    // since the capture. Then the queue's deduplication memory is emptied.
    let queue = queue(&server, "text").await?;
    let mut work = Command::new(env!("CARGO_BIN_EXE_dueq"))
        .args(["--redis", &server.url(), "work", "text", "--print"])
        .stdout(Stdio::null())
        .spawn()?;
    let start = Instant::now();
    while queue.stats().await?.acked < 10 && start.elapsed() < Duration::from_secs(600) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Command::new("kill")
        .args(["-INT", &work.id().to_string()])
        .status()?;
    assert_eq!(
        (work.wait()?.code(), queue.stats().await?.acked),
        (Some(0), 10)
    );
    server.command(&["ZREMRANGEBYSCORE", "dueq:{text}:recent", "-inf", "(+inf"])?;
    assert_eq!(counts(&import(&server, &["text"])?.0), [17, 0, 17, 0]);
    assert_eq!(queue.stats().await?.scheduled, 7);

    // With --again, or after the queue was deleted, the import creates them again.
    assert_eq!(
        counts(&import(&server, &["text", "--again"])?.0),
        [17, 10, 7, 0]
    );
    assert!(queue.delete().await?);
    assert_eq!(counts(&import(&server, &["text"])?.0), [17, 17, 0, 0]);
    Ok(())
}

#[tokio::test]
async fn killed_import_continues_without_duplicates() -> Result<()> {
    const COUNT: u64 = 30_000;
    let server = Server::start(&[])?;
    // Stores elements as Redisson's own script does.
    let fill = "for i = 1, tonumber(ARGV[1]) do \
        local value = struct.pack('Bc0Lc0', 8, string.format('%08d', i), 4, 'same') \
        redis.call('ZADD', KEYS[1], 4000000000000 + i, value) redis.call('RPUSH', KEYS[2], value) end return 1";
    let keys = [
        "redisson_delay_queue_timeout:{big}",
        "redisson_delay_queue:{big}",
    ];
    server.command(&["EVAL", fill, "2", keys[0], keys[1], &COUNT.to_string()])?;

    let queue = queue(&server, "big").await?;
    let mut first = Command::new(env!("CARGO_BIN_EXE_dueq"))
        .args(["--redis", &server.url(), "import", "redisson", "big"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    while queue.stats().await?.scheduled < 1_000 && first.try_wait()?.is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.kill()?;
    first.wait()?;
    // Wait for pushes that were in flight when the program was killed.
    let mut before = u64::MAX;
    while before != queue.stats().await?.scheduled {
        before = queue.stats().await?.scheduled;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (report, code) = import(&server, &["big"])?;
    assert_eq!(
        (counts(&report), code),
        ([COUNT, COUNT - before, before, 0], Some(0)),
        "{report}"
    );
    assert_eq!(queue.stats().await?.scheduled, COUNT);
    assert_eq!(queue.stats().await?.pushed, COUNT);
    println!("killed after {before} of {COUNT}");
    Ok(())
}

#[tokio::test]
async fn unreadable_elements_are_reported_and_others_imported() -> Result<()> {
    let server = load(CURRENT)?;
    let (timeouts, list) = (
        "redisson_delay_queue_timeout:{text}",
        "redisson_delay_queue:{text}",
    );
    server.command(&["ZADD", timeouts, "4000000000000", "no frame \x1b[2J"])?;
    server.command(&["ZADD", timeouts, "inf", "\u{8}abcdefgh\u{1}\0\0\0\0\0\0\0x"])?;
    server.command(&["RPUSH", list, "no due time"])?;
    store(&server, "text", "-", "ff")?;
    let output = dueq(
        &server,
        &["import", "redisson", "text", "--codec", "string"],
    )?;
    let (said, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        said.contains(
            "21 elements of text read: 17 imported into text, 0 known from before, 4 unreadable"
        ),
        "{said}"
    );
    for (key, reason) in [
        (timeouts, "no frame of Redisson"),
        (timeouts, "due time is inf"),
        (list, "no due time"),
        ("text", "not UTF-8"),
    ] {
        assert!(
            errors
                .lines()
                .any(|line| line.contains(key) && line.contains(reason)),
            "{key}, {reason}: {errors}"
        );
    }
    assert!(
        errors.contains("no frame \\u{1b}[2J") && !errors.contains('\x1b'),
        "{errors}"
    );

    // A second run with another codec imports an element that the first run could not read. A
    // payload above the queue's limit is refused without affecting the others.
    let large = "return redis.call('RPUSH', KEYS[1], string.rep('x', 2097152), 'after')";
    server.command(&["EVAL", large, "1", "text"])?;
    let (report, code) = import(&server, &["text"])?;
    assert_eq!(
        (counts(&report), code),
        ([23, 2, 17, 4], Some(1)),
        "{report}"
    );
    let output = dueq(&server, &["import", "redisson", "text", "--json"])?;
    let lines: Vec<Value> = output
        .stdout
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    assert_eq!(lines.len(), 5, "four unreadable, one report");
    let large = &lines[3]["unreadable"];
    assert_eq!(large["key"], "text");
    assert!(
        large["reason"]
            .as_str()
            .is_some_and(|reason| reason.starts_with("refused")),
        "{large}"
    );
    Ok(())
}

#[tokio::test]
async fn import_refusals_give_their_reason() -> Result<()> {
    let server = load(CURRENT)?;
    server.command(&["SET", "redisson_delay_queue_timeout:{other}", "x"])?;
    for (args, code, reason) in [
        (&["absent"][..], 1, "no RDelayedQueue of this name"),
        (&["other"], 1, "WRONGTYPE"),
        (&["{tagged}:text"], 2, "--into"),
        (
            &["text", "--from", "redis://me:secret@127.0.0.1:1/"],
            1,
            "127.0.0.1:1",
        ),
        (&["text", "--from", "nonsense"], 2, "--from is no URL"),
    ] {
        let output = dueq(&server, &[&["import", "redisson"], args].concat())?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(
            errors.contains(reason) && !errors.contains("secret"),
            "{args:?}: {errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
    }
    // An import from another server, which has no due elements.
    let target = Server::start(&[])?;
    let (report, code) = import(&target, &["text", "--from", &server.url(), "--skip-due"])?;
    assert_eq!((counts(&report), code), ([14, 14, 0, 0], Some(0)));
    Ok(())
}

#[tokio::test]
async fn import_refuses_an_active_redisson_without_live() -> Result<()> {
    use std::io::{Read, Write};
    let server = load(CURRENT)?;
    let mut redisson = std::net::TcpStream::connect(("127.0.0.1", server.port()))?;
    redisson.write_all(b"SUBSCRIBE redisson_delay_queue_channel:{text}\r\n")?;
    ensure!(redisson.read(&mut [0; 100])? > 0);
    let output = dueq(&server, &["import", "redisson", "text"])?;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--live"));
    assert_eq!(import(&server, &["text", "--live"])?.1, Some(0));
    Ok(())
}
