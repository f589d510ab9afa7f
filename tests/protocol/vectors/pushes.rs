//! Pushes: the first one, options, a full queue and bad items.

use anyhow::{Result, ensure};

use super::{add, ids};
use crate::queue::{Queue, SECOND, T0, attempt, token};
use crate::reply::{Text, words};

#[test]
fn the_first_push_creates_the_whole_queue() -> Result<()> {
    let mut queue = Queue::start()?;
    ensure!(
        queue.items(
            "push",
            T0,
            words![attempt(T0, 1), "a", T0 + 5, "payload", "max_attempts=3"]
        )? == ["CREATED"]
    );
    let found = queue.state()?;
    let incarnation = found
        .meta
        .get(&Text::from("incarnation"))
        .cloned()
        .unwrap_or_default();
    ensure!(
        incarnation.0.len() == 16 && incarnation.0.iter().all(u8::is_ascii_hexdigit),
        "{incarnation:?}"
    );
    let placeholder = crate::state::placeholder();
    let zset = || vec![(placeholder.clone(), f64::INFINITY)];
    let hash = || [(placeholder.clone(), Text::default())].into();
    let mut expected = crate::state::State {
        scheduled: zset(),
        ready: vec![placeholder.clone()],
        leases: zset(),
        claims: hash(),
        messages: hash(),
        attrs: hash(),
        dead: zset(),
        recent: zset(),
        nodes: zset(),
        meta: hash(),
        wake: Vec::new(),
    };
    add(&mut expected.scheduled, "a", T0 + 5);
    add(
        &mut expected.recent,
        &format!("\u{3}{}", attempt(T0, 1)),
        T0 + 10_000,
    );
    expected.messages.insert("a".into(), "payload".into());
    expected
        .attrs
        .insert("a".into(), "0 0 - max_attempts=3\n".into());
    for (field, value) in [
        ("test", "1"),
        ("layout", "1"),
        ("seq", "1"),
        ("pushed", "1"),
        ("incarnation", &incarnation.text()),
    ] {
        expected.meta.insert(field.into(), value.into());
    }
    ensure!(
        found.difference(&expected).is_none(),
        "{:?}",
        found.difference(&expected)
    );
    Ok(())
}

#[test]
fn trace_parent_is_stored_and_a_malformed_one_refused() -> Result<()> {
    let mut queue = Queue::start()?;
    let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let parent = format!("traceparent=00-{trace}-{span}-01");
    let words = words![
        "",
        "alone",
        T0,
        "",
        &parent,
        "last counts",
        T0,
        "",
        format!("traceparent=00-{span}{span}-{span}-00 {parent} max_attempts=2"),
    ];
    ensure!(queue.items("push", T0, words)? == ["CREATED", "CREATED"]);
    let state = queue.state()?;
    ensure!(state.attrs.get(&"alone".into()) == Some(&format!("0 0 - {parent}\n").into()));
    ensure!(
        state.attrs.get(&"last counts".into())
            == Some(&format!("0 0 - max_attempts=2 {parent}\n").into())
    );

    let (no_trace, no_span) = ("0".repeat(32), "0".repeat(16));
    for bad in [
        String::new(),
        format!("{trace}-{span}-01"),
        format!("01-{trace}-{span}-01"),
        format!("00-{no_trace}-{span}-01"),
        format!("00-{trace}-{no_span}-01"),
        format!("00-{}-{span}-01", trace.to_uppercase()),
        format!("00-{trace}-{span}-0G"),
        format!("00-{trace}-{span}-1"),
        format!("00-{trace}-{span}-001"),
        format!("00-{trace}-{span}-01-1"),
        format!("00-{trace}-{span}-01\n"),
        format!("00-{trace}0-{span}-01"),
        format!("00-{trace}-{span}0-01"),
    ] {
        let replies = queue.items(
            "push",
            T0,
            words!["", "bad", T0, "", format!("traceparent={bad}")],
        )?;
        ensure!(
            replies[0].starts_with("INVALID option"),
            "{bad:?}: {replies:?}"
        );
    }
    ensure!(
        queue.state()?.difference(&state).is_none(),
        "a refused item left a trace"
    );

    // Promote, claim and retry keep the options.
    queue.ok("promote", T0, words![10])?;
    queue.ok("claim", T0, words![10, token('a'), 30 * SECOND])?;
    queue.items(
        "retry",
        T0,
        words![
            "alone",
            token('a'),
            0,
            "why",
            "last counts",
            token('a'),
            0,
            "why"
        ],
    )?;
    let state = queue.state()?;
    ensure!(state.attrs.get(&"alone".into()) == Some(&format!("1 0 - {parent}\nwhy").into()));
    ensure!(
        state.attrs.get(&"last counts".into())
            == Some(&format!("1 0 - max_attempts=2 {parent}\nwhy").into())
    );
    Ok(())
}

#[test]
fn a_full_queue_refuses_each_item_with_full() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["max_messages", 2])?;
    let three = words![
        "", "a", "+1", "", "", "b", "+1", "", "", "c", "+1", "", "", "a", "+1", "", ""
    ];
    let replies = queue.items("push", T0, three)?;
    ensure!(
        replies[..2] == ["CREATED", "CREATED"]
            && replies[2].starts_with("FULL ")
            && replies[3] == "EXISTS scheduled"
    );
    ensure!(queue.push(T0, "c", "+1", "")?.starts_with("FULL "));
    queue.ok("cancel", T0, words!["", "a"])?;
    ensure!(queue.push(T0, "c", "+1", "")? == "CREATED");
    queue.ok("configure", T0, words!["max_messages", ""])?;
    ensure!(queue.push(T0, "d", "+1", "")? == "CREATED");
    Ok(())
}

#[test]
fn a_bad_item_does_not_fail_the_others_of_its_batch() -> Result<()> {
    let mut queue = Queue::start()?;
    let words = words![
        "",
        "a",
        "+1",
        "",
        "",
        "",
        "+1",
        "",
        "",
        "bell\u{7}",
        "+1",
        "",
        "",
        "x".repeat(201),
        "+1",
        "",
        "", //
        "b",
        "soon",
        "",
        "",
        "b",
        "-1",
        "",
        "",
        "b",
        "1.5",
        "",
        "",
        "b",
        "nan",
        "",
        "",
        "b",
        "0x10",
        "",
        "", //
        "b",
        "+1",
        "",
        "unknown",
        "b",
        "+1",
        "",
        "max_attempts=0",
        "b",
        "+1",
        "",
        "max_attempts=1000001", //
        "b",
        "+1",
        "",
        "on_conflict=never",
        "b",
        "+1",
        "x".repeat(1_048_577),
        "",
        "z",
        "+1",
        "",
        "  max_attempts=1  "
    ];
    let replies = queue.items("push", T0, words)?;
    ensure!(replies[0] == "CREATED" && replies[replies.len() - 1] == "CREATED");
    ensure!(
        replies[1..replies.len() - 1]
            .iter()
            .all(|reply| reply.starts_with("INVALID ")),
        "{replies:?}"
    );
    ensure!(ids(&queue.state()?.scheduled) == ["a", "z"]);

    queue.ok("promote", T0 + SECOND, words![10])?;
    queue.ok("claim", T0 + SECOND, words![10, token('a'), 30 * SECOND])?;
    let (good, bad, now) = (token('a'), token('b'), T0 + SECOND);
    ensure!(
        queue.items(
            "extend",
            now,
            words![
                "a", &good, "x", "a", &bad, 5, "q", &good, 5, "z", &good, 60_000
            ]
        )?[..3]
            == ["INVALID lease must be 1 to 86400000 ms", "LOST", "GONE"]
    );
    let again = queue.items(
        "again",
        now,
        words![
            "a", &good, "soon", "a", &bad, "+1", "q", &good, "+1", "a", &good, "+1"
        ],
    )?;
    ensure!(
        again[0].starts_with("INVALID")
            && again[1..]
                == [
                    "LOST".to_owned(),
                    "GONE".to_owned(),
                    format!("OK {}", now + 1)
                ]
    );
    let retry = queue.items(
        "retry",
        now,
        words![
            "z", &good, "-1", "", "z", &good, "+1", "", "z", &bad, 1, "", "z", &good, 1, ""
        ],
    )?;
    ensure!(
        retry[0].starts_with("INVALID")
            && retry[1].starts_with("INVALID")
            && retry[2] == "LOST"
            && retry[3] == "DEAD"
    );
    let moves = queue.items(
        "reschedule",
        now,
        words![
            "a", "x", "", "a", "+9", "x", "nobody", "+9", "", "z", "+9", "", "a", "+9", ""
        ],
    )?;
    ensure!(moves[0].starts_with("INVALID") && moves[1].starts_with("INVALID"));
    ensure!(
        moves[2..]
            == [
                "ABSENT".to_owned(),
                "DEAD".to_owned(),
                format!("MOVED {}", now + 9)
            ]
    );
    Ok(())
}
