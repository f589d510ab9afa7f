//! Vectors of the keys of a partition, and of the partition of an id.

use serde_json::{Map, Value, json};

use super::shared::{fault, hex, with};
use crate::protocol::keys::Keys;
use crate::protocol::partition_map::{PartitionMap, Tag, id_of_follow_up, index_of};

/// The index of an id, and the id of its first follow-up.
pub(super) fn routing() -> Vec<Value> {
    let ids: [&[u8]; 14] = [
        b"order:42",
        b"order:43",
        b"123456789",
        b"{order:42}:rate",
        b"x{order:1}{y}",
        b"{}a",
        b"a{b",
        b"a}b{",
        b"}{",
        b"{",
        "größe".as_bytes(),
        "🦀{🦀}".as_bytes(),
        b"\xff\xfe",
        b"a\r\n\0b",
    ];
    let mut lines = Vec::new();
    for id in ids {
        let indexes: Map<_, _> = [1, 3, 4, 12, 255, 256]
            .map(|count: usize| (count.to_string(), index_of(id, count).into()))
            .into_iter()
            .collect();
        lines.push(json!({"id_hex": hex(id), "index_of": indexes, "follow_up_hex": hex(&id_of_follow_up(id, 1))}));
    }
    lines
}

pub(super) fn keys() -> Vec<Value> {
    let mut lines = Vec::new();
    for name in [
        "orders",
        "die größte, Nr. 1: \"orders\"",
        "",
        "a/b",
        "a{b",
        "a}",
        "a\nb",
        &"x".repeat(128),
        &"x".repeat(129),
    ] {
        for tag in [Tag::Home, Tag::Numbered(17)] {
            let line = json!({"queue": name, "tag": tag.to_string()});
            lines.push(with(
                line,
                match Keys::of_partition(name, tag) {
                    Ok(keys) => {
                        json!({"keys": keys.vector, "wake": keys.wake, "notice": keys.notice})
                    }
                    Err(error) => json!({"error": fault(&error)}),
                },
            ));
        }
    }
    lines
}

/// Maps, and for ids in them the partitions and fences of the calls in their order.
pub(super) fn maps() -> Vec<Value> {
    let many: Vec<_> = (0..256).map(|n| n.to_string()).collect();
    let texts = [
        "7|- 17|- 17",
        "1700000000000|- 17 203|- 17 203",
        "8|-|- 203 0",
        "9|- 203 0|-",
        "10|- 4|",
        "7|-|-",
        "9007199254740991|-|-",
        "",
        "7|-",
        "7|-|-|-",
        "0|-|-",
        "07|-|-",
        "x|-|-",
        "9007199254740992|-|-",
        "7|| -",
        "7||-",
        "7|4|- 4",
        "7|-|4 -",
        "7|-|- 4 4",
        "7|-|- -",
        "7|-|- 04",
        "7|-|- +4",
        "7|-|-  4",
        "7|-|- 1000000000",
        &format!("7|-|- {}", many.join(" ")),
    ];
    let tags = |tags: &[Tag]| tags.iter().map(Tag::to_string).collect::<Vec<_>>();
    let read = |text: &str| match PartitionMap::parse("orders", text) {
        Err(error) => json!({"error": fault(&error)}),
        Ok(map) => {
            let mut calls = Map::new();
            for id in ["order:42", "order:43", "order:44", "{order:42}:rate"] {
                let tag = |tags: &[Tag]| tags[index_of(id.as_bytes(), tags.len())].to_string();
                let call =
                    |form: &str, tags: &[Tag]| json!([tag(tags), format!("{form}{}", map.epoch)]);
                let steps = match map.moves() && tag(&map.old) != tag(&map.new) {
                    _ if map.new.is_empty() => vec![],
                    true => vec![call("p", &map.old), call("m", &map.new)],
                    false => vec![call("m", &map.new)],
                };
                calls.insert(id.to_owned(), steps.into());
            }
            json!({"epoch": map.epoch, "old": tags(&map.old), "new": tags(&map.new), "calls": calls})
        }
    };
    texts
        .iter()
        .map(|text| with(json!({"map": text}), read(text)))
        .collect()
}
