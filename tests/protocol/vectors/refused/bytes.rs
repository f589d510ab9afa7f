//! Payloads may have any bytes, and ids almost any. Reads and claims return both unchanged.

use anyhow::{Result, ensure};

use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::{Text, words};
use crate::scripts::VERBS;
use crate::vectors::{plausible, seed};

/// Pushes, reads, promotes, claims and acks one message. Its id and payload must come back
/// unchanged.
fn round_trip(queue: &mut Queue, id: &Text, payload: &Text) -> Result<()> {
    ensure!(
        queue.items("push", T0, words!["", id, T0, payload, ""])? == ["CREATED"],
        "{id:?}"
    );
    let got = queue.ok("get", T0, words![id])?;
    ensure!(
        got.part(1)?
            .list()?
            .last()
            .map(|found| found.bytes())
            .transpose()?
            == Some(payload),
        "{got:?}"
    );
    queue.ok("promote", T0, words![1])?;
    ensure!(queue.ok("get", T0, words![id])?.part(1)?.list()?[1].text()? == "ready");
    let claim = queue.ok("claim", T0, words![1, token('a'), SECOND])?;
    let deliveries = claim.deliveries()?;
    let [[got_id, got_payload, ..]] = &deliveries[..] else {
        anyhow::bail!("{id:?}: {claim:?}")
    };
    ensure!(
        got_id.bytes()? == id && got_payload.bytes()? == payload,
        "{claim:?}"
    );
    ensure!(queue.items("ack", T0, words![token('a'), 1, id])? == ["OK"]);
    Ok(())
}

#[test]
fn ids_of_allowed_bytes_come_back_unchanged() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut ids: Vec<Text> = [
        "a",
        " ",
        "with space",
        " lead",
        "trail ",
        ":",
        "1:2:3",
        "12:",
        ":12",
        "order:42",
        "grüße",
        "日本語",
        "🦀",
    ]
    .map(Text::from)
    .to_vec();
    ids.extend(
        [
            "%d",
            "%",
            "^$()%.[]*+-?",
            "{q}",
            "+inf",
            "-inf",
            "(1",
            "nan",
            "0",
            "1e5",
            "\\",
            "\"'`",
        ]
        .map(Text::from),
    );
    ids.extend([
        Text(vec![0xff]),
        Text(vec![0x80, 0xfe, 0xc0]),
        "x".repeat(200).into(),
        Text(vec![0xff; 200]),
    ]);
    for id in &ids {
        round_trip(&mut queue, id, &"payload".into())?;
    }
    Ok(())
}

#[test]
fn ids_with_forbidden_bytes_are_refused() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut ids: Vec<Text> = (0..32)
        .chain([127])
        .map(|control: u8| Text(vec![b'a', control, b'b']))
        .collect();
    ids.extend([
        Text::default(),
        "x".repeat(201).into(),
        Text(vec![0]),
        Text(vec![0xff; 201]),
    ]);
    for id in &ids {
        ensure!(
            queue.items("push", T0, words!["", id, "+1", "", ""])?[0].starts_with("INVALID id"),
            "{id:?}"
        );
    }
    Ok(())
}

#[test]
fn payloads_of_any_bytes_come_back_unchanged() -> Result<()> {
    let mut queue = Queue::start()?;
    let every_byte: Vec<u8> = (0..=255).collect();
    let payloads = [
        Text::default(),
        Text(vec![0]),
        Text(vec![0; 1_000]),
        Text(every_byte.repeat(16)),
        "\r\n$5\r\nhello\r\n".into(),
        "INVALID no, a payload".into(),
        Text(every_byte.repeat(4_096)),
    ];
    for payload in &payloads {
        round_trip(&mut queue, &"id".into(), payload)?;
    }
    ensure!(
        payloads[6].0.len() == 1_048_576,
        "the payload must have 1 MiB, the limit"
    );
    let beyond = Text([payloads[6].0.as_slice(), &[0]].concat());
    ensure!(
        queue.items("push", T0, words!["", "id", "+1", beyond, ""])?[0]
            .starts_with("INVALID payload")
    );
    Ok(())
}

#[test]
fn error_texts_are_bytes_and_are_cut_at_1024() -> Result<()> {
    let mut queue = Queue::start()?;
    let error = Text([b"line\n\0\xff: ".as_slice(), &[b'x'; 2_000]].concat());
    queue.push(T0, "a", T0, "")?;
    for verb in ["retry", "bury"] {
        ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
        let words = if verb == "retry" {
            words!["a", token('a'), 0, &error]
        } else {
            words!["a", token('a'), &error]
        };
        queue.ok(verb, T0, words)?;
        let got = queue.ok("get", T0, words!["a"])?;
        ensure!(
            got.part(1)?.list()?[11].bytes()?.0 == error.0[..1_024],
            "{verb}: {got:?}"
        );
    }
    Ok(())
}

#[test]
fn any_16_bytes_are_accepted_as_a_token() -> Result<()> {
    let mut queue = Queue::start()?;
    for token in [
        Text(vec![0; 16]),
        Text(vec![0xff; 16]),
        Text((0..16).collect()),
        "1234567890123456".into(),
    ] {
        queue.push(T0, "a", T0, "")?;
        ensure!(queue.take(T0, 1, &token)? == ["a"]);
        let mut other = token.clone();
        other.0[15] ^= 1;
        ensure!(
            queue.items(
                "ack",
                T0,
                words![&other, 1, "a", &token.0[..15], 1, "a", &token, 1, "a"]
            )? == ["LOST", "LOST", "OK"]
        );
    }
    Ok(())
}

fn full(queue: &mut Queue) -> Result<()> {
    ensure!(
        queue
            .command(words!["CONFIG", "SET", "maxmemory-policy", "noeviction"])?
            .code()
            .is_none()
    );
    ensure!(
        queue
            .command(words!["CONFIG", "SET", "maxmemory", "1"])?
            .code()
            .is_none()
    );
    Ok(())
}

#[test]
fn a_full_server_refuses_only_verbs_that_add_data() -> Result<()> {
    let mut queue = Queue::start()?;
    for row in VERBS {
        let verb = row.name;
        queue.command(words!["CONFIG", "SET", "maxmemory", "0"])?;
        queue.empty()?;
        seed(&mut queue)?;
        full(&mut queue)?;
        let before = queue.contents()?;
        let reply = queue.call(verb, T0, plausible(verb))?;
        if row.is_refused_when_full() {
            ensure!(reply.code() == Some("OOM"), "{verb}: {reply:?}");
            ensure!(queue.contents()? == before, "{verb} left a trace");
        } else {
            ensure!(reply.code().is_none(), "{verb}: {reply:?}");
        }
    }
    Ok(())
}

#[test]
fn a_first_push_into_a_full_server_creates_no_queue() -> Result<()> {
    let mut queue = Queue::start()?;
    full(&mut queue)?;
    let before = queue.contents()?;
    ensure!(queue.call("push", T0, plausible("push"))?.code() == Some("OOM"));
    ensure!(queue.contents()? == before);
    Ok(())
}
