//! Random unusual arguments: each reply is one that the documents name, and the state stays sound.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use crate::model::check_structure;
use crate::queue::{Queue, T0, attempt, token};
use crate::reply::{Reply, Text, words};
use crate::scripts::{SCRIPTS, VERBS};
use crate::state::{KEYS, placeholder};
use crate::vectors::{declare, plausible, seed, with_every_state};

const CALLS: usize = 100;

fn odd(random: &mut Rng) -> Text {
    let texts = [
        "",
        " ",
        "0",
        "1",
        "-1",
        "1.5",
        "1e3",
        "0x10",
        "nan",
        "inf",
        "1e400",
        "+5",
        "++5",
        "now",
        "ids",
        "oldest",
        "close",
        "since=5",
        "s",
        "r",
        "l",
        "d",
        "hourly",
        "\u{4}hourly",
        "a\nb",
        "1|2",
        "m7",
        "every=1000",
        "on_conflict=next window=5",
        "9007199254740993",
        "18446744073709551616",
        "2026a 0\n5 4",
        "-|-",
    ];
    match random.u32(0..12) {
        0 => placeholder(),
        1 => token('l'),
        2 => random
            .choice(["9", "1", "x"])
            .unwrap_or_default()
            .repeat(random.usize(15..420))
            .into(),
        3 => (T0 + random.u64(0..5_000) - 2_500).into(),
        _ => random.choice(texts).unwrap_or_default().into(),
    }
}

/// Changes one to three arguments of a call: other text, one less, one more, or very many.
fn change(random: &mut Rng, argv: &mut Vec<Text>) {
    for _ in 0..random.usize(1..4) {
        let at = random.usize(0..=argv.len());
        match random.u32(0..20) {
            0 => argv.extend(vec![odd(random); 9_000]),
            1..4 if at < argv.len() => drop(argv.remove(at)),
            4..7 => argv.insert(at, odd(random)),
            _ if at < argv.len() => argv[at] = odd(random),
            _ => argv.push(odd(random)),
        }
    }
}

/// The results in a reply: the texts that begin with a word in capitals.
fn results(reply: &Reply, found: &mut Vec<String>) {
    match reply {
        Reply::Text(text) => {
            let word = text.text();
            let word = word.split(' ').next().unwrap_or_default();
            let is_result = |letter: char| letter.is_ascii_uppercase() || letter == '_';
            if word.len() > 1 && word.chars().all(is_result) {
                found.push(word.to_owned());
            }
        }
        Reply::List(items) => items.iter().for_each(|item| results(item, found)),
        Reply::Error(_) => found.extend(reply.code().map(str::to_owned)),
        _ => {}
    }
}

#[test]
fn every_reply_to_unusual_arguments_is_documented() -> Result<()> {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/protocol");
    let read = |page: &str| fs::read_to_string(pages.join(page)).with_context(|| page.to_owned());
    let common = read("verbs/README.md")? + &read("calling.md")?;
    let mut sections = BTreeMap::new();
    for page in fs::read_dir(pages.join("verbs"))? {
        let text = fs::read_to_string(page?.path())?;
        sections.extend(text.split("\n## ").skip(1).map(|section| {
            let verb = section.lines().next().unwrap_or_default();
            (verb.to_owned(), format!("{section}{common}"))
        }));
    }
    for verb in VERBS {
        let page = &sections[verb.name];
        let mut random = Rng::with_seed(verb.name.bytes().map(u64::from).sum());
        let mut queue = with_every_state()?;
        declare(&mut queue)?;
        for _ in 0..CALLS {
            let mut argv = plausible(verb.name);
            change(&mut random, &mut argv);
            let reply = queue.call(verb.name, T0, argv.clone())?;
            // ERR is an error of Redis within the script, after which it is not known whether the
            // script wrote.
            ensure!(
                reply.code() != Some("ERR"),
                "{} {:?}: {reply:?}",
                verb.name,
                &argv[..argv.len().min(8)]
            );
            let mut found = Vec::new();
            results(&reply, &mut found);
            for word in found {
                ensure!(page.contains(&word), "{} {argv:?}: {reply:?}", verb.name);
            }
        }
        let state = queue.state()?;
        check_structure(&state, None).with_context(|| verb.name)?;
    }
    Ok(())
}

/// An id that no other key holds is new, whatever the keys hold that only other states have. A push of several judges
/// them one by one if an id is given twice: so it reads these keys first.
#[test]
fn a_push_of_one_new_message_reads_no_other_state() -> Result<()> {
    let mut queue = Queue::start()?;
    for key in ["claims", "attrs", "dead"] {
        queue.empty()?;
        seed(&mut queue)?;
        let key = queue.key(key);
        queue.command(words!["SET", &key, "somebody else's"])?;
        let lone = words![attempt(T0, 1), "one", "+0", "payload", ""];
        let reply = queue.ok("push", T0, lone)?;
        ensure!(
            reply.part(1)?.part(0)?.text()? == "CREATED",
            "{key}: {reply:?}"
        );
        let several = words![attempt(T0, 2), "two", "+0", "", "", "three", "+0", "", ""];
        let reply = queue.call("push", T0, several)?;
        ensure!(reply.code() == Some("WRONGTYPE"), "{key}: {reply:?}");
    }
    Ok(())
}

#[test]
fn a_wrong_type_of_any_key_leaves_all_keys_unchanged() -> Result<()> {
    let mut queue = Queue::start()?;
    let items = (0..5).flat_map(|number| words![format!("new {number}"), "+0", "payload", ""]);
    let several = words![attempt(T0, 1)]
        .into_iter()
        .chain(items)
        .collect::<Vec<_>>();
    let calls = SCRIPTS
        .iter()
        .map(|(verb, _)| (*verb, plausible(verb)))
        .chain([("push", several)]);
    for (verb, call) in calls {
        for key in KEYS {
            queue.empty()?;
            seed(&mut queue)?;
            // Without an expired lease, the reap would stop before it reads further keys.
            let beats =
                ["last_beat", &T0.to_string(), "reap_after", "0"].map(crate::reply::Text::from);
            queue.command([words!["HSET", "dueq:{q}:meta"], beats.to_vec()].concat())?;
            queue.command(words![
                "ZADD",
                "dueq:{q}:leases",
                T0,
                format!("\u{1}{}", token('l').text())
            ])?;
            let key = queue.key(key);
            queue.command(words!["SET", &key, "somebody else's"])?;
            let before = queue.contents()?;

            let reply = queue.call(verb, T0, call.clone())?;
            let after = queue.contents()?;
            let suffix = key.rsplit(':').next().unwrap_or_default();
            if crate::scripts::verb(verb).unneeded.contains(&suffix) {
                ensure!(reply.code().is_none(), "{verb} needs {key}: {reply:?}");
                ensure!(
                    after.get(&(&key).into()) == before.get(&(&key).into()),
                    "{verb} changed {key}"
                );
            } else {
                ensure!(
                    reply.code() == Some("WRONGTYPE"),
                    "{verb} with a wrong type under {key}: {reply:?}"
                );
                ensure!(
                    after == before,
                    "{verb} with a wrong type under {key} failed after a write"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn a_wrong_type_of_a_key_prevents_the_creation_of_a_queue() -> Result<()> {
    let mut queue = Queue::start()?;
    for verb in VERBS.iter().filter(|verb| verb.creates()) {
        let verb = verb.name;
        for key in KEYS {
            queue.empty()?;
            let key = queue.key(key);
            queue.command(words!["SET", &key, "somebody else's"])?;
            let before = queue.contents()?;
            let reply = queue.call(verb, T0, plausible(verb))?;
            ensure!(
                reply.code() == Some("WRONGTYPE"),
                "{verb} with a wrong type under {key}: {reply:?}"
            );
            ensure!(
                queue.contents()? == before,
                "{verb} with a wrong type under {key} failed after a write"
            );
        }
    }
    Ok(())
}

#[test]
fn a_wrong_type_of_the_wake_up_list_stops_no_verb() -> Result<()> {
    let mut queue = Queue::start()?;
    for (verb, _) in SCRIPTS {
        queue.empty()?;
        seed(&mut queue)?;
        let wake = queue.key("wake");
        queue.command(words!["SET", &wake, "somebody else's"])?;
        queue.ok(verb, T0, plausible(verb))?;
        ensure!(queue.command(words!["GET", &wake])? == "somebody else's".into());
    }
    Ok(())
}
