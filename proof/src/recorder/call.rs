//! Reads the arguments of a script call into a [`Call`].

use super::{batch, number, text};
use crate::history::{Call, ChangeItem, PushItem, SettleItem, Verb};
use crate::payload;
/// The last 8 bytes of a token, in hexadecimal: enough to tell claims apart. The first bytes may
/// name the node.
fn token(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes
        .iter()
        .skip(bytes.len().saturating_sub(8))
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect()
}

/// Parses the ARGV of a script call; the first argument is the test clock.
pub(super) fn call_of(verb: &str, args: &[&[u8]]) -> Call {
    let args = args.get(1..).unwrap_or_default();
    let settle = |verb, size| Call::Settle {
        verb,
        items: args
            .chunks_exact(size)
            // After the token comes a time for all verbs except bury, which takes a reason.
            .map(|item| {
                SettleItem(
                    text(item[0]),
                    token(item[1]),
                    item.get(2)
                        .filter(|_| verb != Verb::Bury)
                        .map(|rest| text(rest))
                        .unwrap_or_default(),
                )
            })
            .collect(),
    };
    let change = |verb, ids: &[&[u8]], rest: &str| Call::Change {
        verb,
        items: ids
            .iter()
            .map(|id| ChangeItem(text(id), rest.to_owned()))
            .collect(),
    };
    match (verb, args) {
        ("push" | "upsert", [until, items @ ..]) => {
            let until = until.strip_suffix(b" fresh").unwrap_or(until);
            let digits = until
                .iter()
                .position(|byte| !byte.is_ascii_digit())
                .unwrap_or(until.len());
            let (until, nonce) = until.split_at(digits);
            let items = items.chunks_exact(4).map(push_item).collect();
            Call::Push {
                until_ms: number(until),
                nonce: text(nonce),
                items,
            }
        }
        ("held", [given]) => Call::Other {
            verb: verb.to_owned(),
            args: vec![token(given)],
        },
        ("claim", [n, given, lease]) => Call::Claim {
            n: number(n),
            token: token(given),
            lease_ms: number(lease),
            due: true,
        },
        ("ack", _) => Call::Settle {
            verb: Verb::Ack,
            items: acked(args),
        },
        ("ack_push", [given, items @ ..]) => {
            let (given, id) = given.split_at(given.len().min(16));
            Call::Follow {
                ack: Box::new(SettleItem(text(id), token(given), String::new())),
                items: items.chunks_exact(4).map(push_item).collect(),
            }
        }
        ("release", _) => settle(Verb::Release, 2),
        ("again", _) => settle(Verb::Again, 3),
        ("extend", _) => settle(Verb::Extend, 3),
        ("bury", _) => settle(Verb::Bury, 3),
        ("snooze", _) => settle(Verb::Snooze, 3),
        // The other form of a throttle, which closes a queue until a time, names no messages.
        ("throttle", [_, _, _, ..]) => settle(Verb::Throttle, 3),
        ("retry", _) => settle(Verb::Retry, 4),
        ("cancel", [dead, ids @ ..]) => change(
            Verb::Cancel,
            ids,
            if dead.starts_with(b"1") { "dead" } else { "" },
        ),
        // Names that begin with a control byte are what the partition remembers of an id.
        ("depart", [fate, _, _, _, names @ ..]) => {
            let is_id = |name: &&&[u8]| name.first().is_some_and(|byte| *byte >= 32);
            let ids = names.iter().filter(is_id).map(|id| text(id)).collect();
            let fate = text(fate);
            Call::Depart { fate, ids }
        }
        ("arrive", [from, of, bytes]) => {
            let (from, number, sum) = (text(from), number(of), batch::sum(bytes));
            Call::Arrive { from, number, sum }
        }
        ("get", ids) => change(Verb::Get, ids, ""),
        ("run_now", ids) => change(Verb::RunNow, ids, ""),
        ("requeue", [b"ids", ids @ ..]) => change(Verb::Requeue, ids, ""),
        ("reschedule", items) => Call::Change {
            verb: Verb::Reschedule,
            items: items
                .chunks_exact(3)
                .map(|item| {
                    ChangeItem(
                        text(item[0]),
                        [text(item[1]), text(item[2])]
                            .join(" ")
                            .trim_end()
                            .to_owned(),
                    )
                })
                .collect(),
        },
        _ => Call::Other {
            verb: verb.to_owned(),
            args: args.iter().map(|arg| text(arg)).collect(),
        },
    }
}

/// Parses acks: for each claim its token, the number of its ids, and the ids.
fn acked(mut args: &[&[u8]]) -> Vec<SettleItem> {
    let mut items = Vec::new();
    while let [given, count, rest @ ..] = args {
        let (ids, others) = rest.split_at(number::<usize>(count).min(rest.len()));
        items.extend(
            ids.iter()
                .map(|id| SettleItem(text(id), token(given), String::new())),
        );
        args = others;
    }
    items
}

fn push_item(item: &[&[u8]]) -> PushItem {
    let (id, payload) = (text(item[0]), item[2]);
    let version = payload::version_of(&id, payload);
    PushItem(
        id,
        text(item[1]),
        version,
        u32::try_from(payload.len()).unwrap_or(u32::MAX),
        text(item[3]),
    )
}
#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn calls_are_parsed_like_the_scripts_do() {
        let payload = payload::make("p1-7", 2, 100);
        let item = PushItem("p1-7".into(), "+5".into(), 2, 100, "reuse".into());
        for (until, nonce) in [
            ("123", ""),
            ("123 fresh", ""),
            ("123.5 n1", ".5 n1"),
            ("123 n1", " n1"),
        ] {
            let push = call_of(
                "push",
                &[b"", until.as_bytes(), b"p1-7", b"+5", &payload, b"reuse"],
            );
            assert_eq!(
                push,
                Call::Push {
                    until_ms: 123,
                    nonce: nonce.into(),
                    items: vec![item.clone()]
                }
            );
        }

        let given = b"\x00\xffABCDEFrest....";
        let claim = call_of("claim", &[b"", b"4", given, b"2000"]);
        assert_eq!(
            claim,
            Call::Claim {
                n: 4,
                token: "726573742e2e2e2e".into(),
                lease_ms: 2_000,
                due: true
            }
        );

        let retry = call_of(
            "retry",
            &[b"", b"a", given, b"50", b"why", b"b", given, b"60", b""],
        );
        let item =
            |id: &str, rest: &str| SettleItem(id.into(), "726573742e2e2e2e".into(), rest.into());
        assert_eq!(
            retry,
            Call::Settle {
                verb: Verb::Retry,
                items: vec![item("a", "50"), item("b", "60")]
            }
        );
        let other = b"\x01\xffABCDEFrest...!";
        let ack = call_of("ack", &[b"", given, b"2", b"a", b"b", other, b"1", b"c"]);
        let last = SettleItem("c".into(), "726573742e2e2e21".into(), String::new());
        assert_eq!(
            ack,
            Call::Settle {
                verb: Verb::Ack,
                items: vec![item("a", ""), item("b", ""), last]
            }
        );
        let bury = call_of("bury", &[b"", b"a", given, b"why"]);
        assert_eq!(
            bury,
            Call::Settle {
                verb: Verb::Bury,
                items: vec![item("a", "")]
            }
        );

        let moved = call_of("reschedule", &[b"", b"a", b"+5", b"", b"b", b"70", b"60"]);
        let items = vec![
            ChangeItem("a".into(), "+5".into()),
            ChangeItem("b".into(), "70 60".into()),
        ];
        assert_eq!(
            moved,
            Call::Change {
                verb: Verb::Reschedule,
                items
            }
        );
        let oldest = call_of("requeue", &[b"", b"oldest", b"10", b""]);
        let args = vec!["oldest".to_owned(), "10".to_owned(), String::new()];
        assert_eq!(
            oldest,
            Call::Other {
                verb: "requeue".into(),
                args
            }
        );
    }
}
