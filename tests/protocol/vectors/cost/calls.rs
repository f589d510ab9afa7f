//! The calls of the cost table: each verb with the most items that a client sends.

#[path = "../../../../src/protocol/counts.rs"]
pub(crate) mod counts;

use counts::*;

use crate::model::repairs::PARTS;
use crate::queue::{HOUR, T0};
use crate::reply::{Text, words};
use crate::state::lease_name;
use crate::vectors::cost::table::Stock;
use crate::vectors::schedules::declared::listed;

/// A call: the name of its special case, the time, and the arguments.
pub(crate) type Call = (&'static str, u64, Vec<Text>);

const OPTIONS: &str = "max_attempts=5 window=60000";

fn payload() -> String {
    "x".repeat(100)
}

/// A batch of these records, in MessagePack.
fn batch(texts: Vec<Text>) -> Text {
    let mut packed = vec![0xdc];
    packed.extend((texts.len() as u16).to_be_bytes());
    for text in texts {
        packed.extend([0xd9, text.0.len() as u8]);
        packed.extend(text.0);
    }
    Text(packed)
}

fn fires(count: usize) -> String {
    let fires: Vec<u64> = (1..=count as u64).map(|at| T0 + at * 60_000).collect();
    listed("2026a", 0, &fires)
}

/// The deliveries of a claim as arguments, each with its token and these words.
fn held(stock: &mut Stock, many: usize, more: &[&str]) -> Vec<Text> {
    let (token, ids) = stock.claim(many);
    let item = |id: Text| {
        let more = more.iter().map(|word| Text::from(*word));
        words![id, &token]
            .into_iter()
            .chain(more)
            .collect::<Vec<_>>()
    };
    ids.into_iter().flat_map(item).collect()
}

fn each(ids: Vec<Text>, more: &[&str]) -> Vec<Text> {
    let item = |id: Text| {
        let more = more.iter().map(|word| Text::from(*word));
        [id].into_iter().chain(more).collect::<Vec<_>>()
    };
    ids.into_iter().flat_map(item).collect()
}

fn push(ids: Vec<Text>, options: &str) -> Vec<Text> {
    [words![""], each(ids, &["+5", &payload(), options])].concat()
}

/// New schedules, as many as one call takes.
fn new_schedules(stock: &mut Stock, spec: &str, pattern: &str, fires: &str) -> Vec<Text> {
    let items = (0..DECLARE).flat_map(|_| {
        let name = stock.fresh();
        words![name, spec, pattern, "", fires, payload()]
    });
    [words!["set", "", ""], items.collect()].concat()
}

fn claim(stock: &mut Stock, count: usize) -> Vec<Text> {
    words![count as u64, stock.token(), 30_000]
}

/// The largest calls of this verb that a client sends; `None` if the cost table has no row for the
/// verb.
pub(crate) fn calls(verb: &str, stock: &mut Stock) -> Option<Vec<Call>> {
    let call = |words| vec![("", T0, words)];
    let many = items_of(verb);
    let scheduled = |stock: &mut Stock| stock.ids("scheduled", many);
    // For ids on the ready list, the script has to search that list.
    let also_ready = |calls: Vec<Call>, stock: &Stock, items: fn(Vec<Text>) -> Vec<Text>| {
        let ready: Vec<Text> = stock.ready.iter().take(many).cloned().collect();
        let more = (!ready.is_empty()).then(|| ("ready", T0, items(ready)));
        calls.into_iter().chain(more).collect()
    };
    Some(match verb {
        "ack" => {
            let (token, ids) = stock.claim(many);
            call([words![token, many as u64], ids].concat())
        }
        "ack_push" => {
            let (token, ids) = stock.claim(1);
            let delivery = Text([&token.0[..], &ids[0].0].concat());
            let ids = (0..MAX_FOLLOW_UPS).map(|_| stock.fresh()).collect();
            let more = each(ids, &["+5", &payload(), OPTIONS]);
            call([vec![delivery], more].concat())
        }
        "again" => call(held(stock, many, &["+5"])),
        "amend" => {
            let (some, others) = (stock.schedules(48), stock.schedules(48));
            let with = |change: &str, names: &[Text]| [words![change], names.to_vec()].concat();
            vec![
                ("pause", T0, with("pause", &some)),
                ("resume", T0, with("resume", &some)),
                ("remove", T0, with("remove", &others)),
            ]
        }
        "arrive" => {
            let records = (0..256).flat_map(|_| {
                let text = [stock.fresh(), "scheduled".into(), Text::from(T0 + HOUR)];
                text.into_iter().chain([payload().into(), "".into()])
            });
            let packed = batch(records.collect());
            call(words!["17", stock.number(), packed])
        }
        "audit" => PARTS
            .into_iter()
            .map(|part| (part, T0, words![part, 0, AUDIT as u64, ""]))
            .collect(),
        "beat" => call(words!["node", "stay"]),
        "bury" => call(held(stock, many, &["why"])),
        "cancel" => {
            let items = |ids| [words![""], ids].concat();
            also_ready(call(items(scheduled(stock))), stock, items)
        }
        "claim" => [("1", 1), ("64", 64), ("", MAX_CLAIM)]
            .into_iter()
            .map(|(what, count)| (what, T0, claim(stock, count)))
            .collect(),
        "configure" => call(words!["max_attempts", 5]),
        "depart" => call([words!["", 0, "17", 5_000], stock.ids("scheduled", 256)].concat()),
        "dues" => call(
            (0..MAX_DUES as u64)
                .map(|at| Text::from(T0 + at * 60_000))
                .collect(),
        ),
        "extend" => call(held(stock, many, &["60000"])),
        "get" => {
            let (_, leased) = stock.claim(1);
            let ids = [
                leased,
                stock.ids("scheduled", 1),
                stock.ids("dead", 1),
                stock.ready.iter().take(1).cloned().collect(),
            ];
            let ids = ids.concat().into_iter();
            ids.map(|id| ("", T0, vec![id])).collect()
        }
        "held" => call(vec![stock.claim(1).0]),
        "history" => ["minutes", "hours", "days"]
            .into_iter()
            .map(|unit| (unit, T0, words![unit]))
            .collect(),
        "nodes" => call(words![]),
        "pause" => call(words![]),
        "peek" => ["scheduled", "ready", "leased", "dead"]
            .into_iter()
            .flat_map(|state| {
                ["", "newest"].map(|order| (state, T0, words![state, "", MAX_ITEMS as u64, order]))
            })
            .collect(),
        "promote" => call(words![PROMOTE as u64]),
        "purge" => vec![
            (
                "scheduled",
                T0,
                words!["scheduled", MAX_ITEMS as u64, "", 0],
            ),
            (
                "scheduled before",
                T0,
                words!["scheduled", MAX_ITEMS as u64, T0, 0],
            ),
            (
                "scheduled behind timers",
                T0,
                words!["scheduled", MAX_ITEMS as u64, "", 8_000],
            ),
            ("dead", T0, words!["dead", MAX_ITEMS as u64]),
            ("dead before", T0, words!["dead", MAX_ITEMS as u64, T0]),
            ("ready before", T0, words!["ready", MAX_ITEMS as u64, T0]),
            ("ready", T0, words!["ready", MAX_ITEMS as u64]),
        ],
        "push" => vec![
            ("", T0, push((0..many).map(|_| stock.fresh()).collect(), "")),
            (
                "options",
                T0,
                push((0..many).map(|_| stock.fresh()).collect(), OPTIONS),
            ),
        ],
        "reap" => {
            let (token, ids) = stock.claim(many);
            let named = ids
                .into_iter()
                .flat_map(|id| words![id, lease_name(&token)]);
            let named = words!["ids"].into_iter().chain(named).collect();
            vec![("", T0, words![REAP as u64]), ("ids", T0, named)]
        }
        "refill" => {
            // Fires of newer rules replace the list.
            let fires = fires(LIST).replace("2026a", "2026b");
            let count = stock.refills.len().min(REFILL);
            let items = stock.refills.drain(..count);
            let items = items.flat_map(|[name, version, last]| words![name, version, last, &fires]);
            let items: Vec<_> = items.collect();
            match items.is_empty() {
                true => call(words!["none", 1, 1, fires]),
                false => call(items),
            }
        }
        "release" => call(held(stock, many, &[])),
        "remap" => call(words!["forward", "7|-|- 203"]),
        "requeue" => vec![
            ("ids", T0, [words!["ids"], stock.ids("dead", many)].concat()),
            ("oldest", T0, words!["oldest", MAX_ITEMS as u64, ""]),
            ("oldest before", T0, words!["oldest", MAX_ITEMS as u64, T0]),
        ],
        "reschedule" => {
            let items = |ids| each(ids, &["+5", ""]);
            also_ready(call(items(scheduled(stock))), stock, items)
        }
        "resume" => call(words![]),
        "retry" => call(held(stock, many, &["5", "error"])),
        "run_now" => call(scheduled(stock)),
        "schedule" => {
            let crons = new_schedules(
                stock,
                "zone=UTC jitter=50000",
                "* * * * *",
                &fires(DECLARE_FIRES),
            );
            let mut changed = crons.clone();
            for spec in changed.iter_mut().skip(4).step_by(6) {
                *spec = "zone=UTC missed=all".into();
            }
            // The prune spares the copied schedules, because other calls need them.
            let copies = (0..4).map(|at| format!("copy{at}").into());
            let stays = stock
                .schedules(MAX_ITEMS as u64 - 28)
                .into_iter()
                .chain(copies)
                .collect();
            let prune = [
                words!["set", "", "prune"],
                each(stays, &["", "", "", "", ""]),
            ]
            .concat();
            vec![
                (
                    "every",
                    T0,
                    new_schedules(stock, "every=60000 jitter=1000", "", ""),
                ),
                ("crons", T0, crons.clone()),
                ("kept", T0, crons),
                ("changed", T0, changed),
                ("prune", T0, prune),
            ]
        }
        "schedules" => ["", "low"]
            .into_iter()
            .flat_map(|low| {
                let middle = "set team/service/schedule00005000";
                [
                    ("first page", T0, words!["", MAX_ITEMS as u64, low]),
                    ("middle page", T0, words![middle, MAX_ITEMS as u64, low]),
                ]
            })
            .chain([("one", T0, words!["copy0"])])
            .collect(),
        "snooze" => call(held(stock, many, &["+5"])),
        "stats" => call(words![]),
        "throttle" => call(held(stock, many, &["5"])),
        "trigger" => {
            let times = (0..BACKFILL as u64).map(|at| Text::from(T0 - stock.number() * 100 - at));
            vec![
                ("times", T0, [words!["copy1"], times.collect()].concat()),
                ("now", T0 + stock.number(), words!["copy1", "now"]),
            ]
        }
        "upsert" => {
            let calls = vec![
                (
                    "replace",
                    T0,
                    push(scheduled(stock), "on_conflict=replace max_attempts=3"),
                ),
                (
                    "reschedule",
                    T0,
                    push(scheduled(stock), "on_conflict=reschedule"),
                ),
                (
                    "next",
                    T0,
                    push(stock.claim(many).1, "on_conflict=next max_attempts=3"),
                ),
            ];
            also_ready(calls, stock, |ids| push(ids, "on_conflict=reschedule"))
        }
        "verify" => call(words![""]),
        _ => return None,
    })
}

/// The order of the verbs: those that change what others need come last.
pub(crate) fn order(verb: &str) -> u8 {
    match verb {
        "reap" | "throttle" => 1,
        "purge" | "requeue" => 2,
        "pause" => 3,
        "resume" => 4,
        "remap" => 5,
        _ => 0,
    }
}

/// The schedules that the state copies: they were declared ten hours ago.
pub(crate) fn copied() -> Vec<Vec<Text>> {
    let begin = T0 - 10 * HOUR;
    let fires: Vec<u64> = (1..=512).map(|at| begin + at * 60_000).collect();
    let fires = listed("2026a", 0, &fires);
    let cron = |name: &str, spec: &str| {
        words![
            name,
            format!("zone=UTC {spec}"),
            "* * * * *",
            "",
            &fires,
            payload()
        ]
    };
    vec![
        cron("copy0", "jitter=50000"),
        words![
            "copy1",
            "every=60000 overlap=replace jitter=1000",
            "",
            "",
            "",
            payload()
        ],
        cron("copy2", "missed=all jitter=36000000"),
        words![
            "copy3",
            "every=60000 overlap=skip missed=all",
            "",
            "",
            "",
            payload()
        ],
    ]
}
