//! The whole state of a queue in Redis: its ten keys and the wake-up list.

use std::collections::BTreeMap;
use std::fmt::Debug;

use anyhow::{Result, bail};

use crate::reply::{Reply, Text};

/// The suffixes of KEYS, in their order.
pub(crate) const KEYS: [&str; 10] = [
    "scheduled",
    "ready",
    "leases",
    "claims",
    "messages",
    "attrs",
    "dead",
    "recent",
    "nodes",
    "meta",
];

/// The base of a partition of the queue `q`; the tag `-` is the home.
pub(crate) fn partition(tag: &str) -> String {
    match tag {
        "-" => "dueq:{q}".to_owned(),
        tag => format!("dueq:{{q/{tag}}}"),
    }
}

/// The ten keys of the queue with this base, such as `dueq:{q}`.
pub(crate) fn keys_of(base: &str) -> Vec<Text> {
    KEYS.iter()
        .map(|suffix| format!("{base}:{suffix}").into())
        .collect()
}

/// The placeholder: the member or field that keeps every key from becoming empty.
pub(crate) fn placeholder() -> Text {
    Text(format!("\0{}", "-".repeat(70)).into_bytes())
}

pub(crate) type Scores = Vec<(Text, f64)>;
pub(crate) type Fields = BTreeMap<Text, Text>;

/// Sorted sets are in Redis's own order: by score, then by bytes. An absent key reads as an empty
/// one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    pub(crate) scheduled: Scores,
    pub(crate) ready: Vec<Text>,
    pub(crate) leases: Scores,
    pub(crate) claims: Fields,
    pub(crate) messages: Fields,
    pub(crate) attrs: Fields,
    pub(crate) dead: Scores,
    pub(crate) recent: Scores,
    pub(crate) nodes: Scores,
    pub(crate) meta: Fields,
    pub(crate) wake: Vec<Text>,
}

impl State {
    /// The commands that read the state, in the order of the replies for `from_replies`.
    pub(crate) fn commands(base: &str) -> Vec<Vec<String>> {
        let read = |suffix: &str| {
            let words: &[&str] = match suffix {
                "ready" | "wake" => &["LRANGE", "", "0", "-1"],
                "claims" | "messages" | "attrs" | "meta" => &["HGETALL", ""],
                _ => &["ZRANGE", "", "0", "-1", "WITHSCORES"],
            };
            let key = format!("{base}:{suffix}");
            words
                .iter()
                .map(|word| {
                    if word.is_empty() {
                        key.clone()
                    } else {
                        (*word).to_owned()
                    }
                })
                .collect()
        };
        KEYS.iter().copied().chain(["wake"]).map(read).collect()
    }

    pub(crate) fn from_replies(replies: &[Reply]) -> Result<Self> {
        let [
            scheduled,
            ready,
            leases,
            claims,
            messages,
            attrs,
            dead,
            recent,
            nodes,
            meta,
            wake,
        ] = replies
        else {
            bail!(
                "{} replies to the commands that read the state",
                replies.len()
            );
        };
        Ok(Self {
            scheduled: scores(scheduled)?,
            ready: texts(ready)?,
            leases: scores(leases)?,
            claims: fields(claims)?,
            messages: fields(messages)?,
            attrs: fields(attrs)?,
            dead: scores(dead)?,
            recent: scores(recent)?,
            nodes: scores(nodes)?,
            meta: fields(meta)?,
            wake: texts(wake)?,
        })
    }

    /// The differences from the expected state, key by key.
    pub(crate) fn difference(&self, expected: &Self) -> Option<String> {
        let mut lines = String::new();
        let mut compare = |key: &str, found: &dyn Debug, expected: &dyn Debug| {
            lines.push_str(&format!(
                "{key}\n    is       {found:?}\n    expected {expected:?}\n"
            ));
        };
        macro_rules! compare {
            ($($key:ident)*) => { $(if self.$key != expected.$key { compare(stringify!($key), &self.$key, &expected.$key); })* };
        }
        compare!(scheduled ready leases claims messages attrs dead recent nodes meta wake);
        (!lines.is_empty()).then_some(lines)
    }

    /// The score of a member, if the set has it.
    pub(crate) fn score(scores: &Scores, id: &Text) -> Option<f64> {
        scores
            .iter()
            .find(|(member, _)| member == id)
            .map(|(_, score)| *score)
    }
}

/// Sorts as Redis does.
pub(crate) fn in_order(mut scores: Scores) -> Scores {
    scores.sort_by(|one, other| one.1.total_cmp(&other.1).then_with(|| one.0.cmp(&other.0)));
    scores
}

fn texts(reply: &Reply) -> Result<Vec<Text>> {
    reply
        .list()?
        .iter()
        .map(|item| item.bytes().cloned())
        .collect()
}

fn scores(reply: &Reply) -> Result<Scores> {
    texts(reply)?
        .chunks_exact(2)
        .map(|pair| Ok((pair[0].clone(), pair[1].text().parse()?)))
        .collect()
}

fn fields(reply: &Reply) -> Result<Fields> {
    Ok(texts(reply)?
        .chunks_exact(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect())
}

/// The name of the lease of a token.
pub(crate) fn lease_name(token: &Text) -> String {
    sha1_smol::Sha1::from(&token.0).digest().to_string()[..16].to_owned()
}

/// What `get` and `peek` return about the lease of a token: its name, and the end of the node's id.
pub(crate) fn lease_of(token: &Text) -> String {
    match token.0.strip_prefix(b"@").map(|rest| &rest[..7]) {
        Some(node) if node.iter().all(u8::is_ascii_alphanumeric) => {
            format!("{} {}", lease_name(token), String::from_utf8_lossy(node))
        }
        _ => lease_name(token),
    }
}
