//! Reads the messages of a batch that is on its way to another partition: an array of MessagePack
//! with five texts for each record: name, place, score, payload, attributes.

use super::{number, text};
use crate::history::MovedItem;
use crate::stored;

/// The messages of a batch, without what else it has; `None` if it is no batch.
pub(super) fn items(batch: &[u8]) -> Option<Vec<MovedItem>> {
    let texts = texts(batch)?;
    let records = texts.chunks_exact(5);
    let messages = records.filter(|record| record[1] != b"recent");
    Some(messages.map(item).collect())
}

/// A number that stands for the bytes of a batch; 0 if there are none.
pub(super) fn sum(batch: &[u8]) -> u64 {
    match batch {
        [] => 0,
        batch => crate::workload::hash(batch) | 1,
    }
}

fn item(record: &[&[u8]]) -> MovedItem {
    let (id, state, score) = (text(record[0]), text(record[1]), number(record[2]));
    // Failures, crashes, original due time, options; then a line feed and the last error.
    let attrs = text(record[4]);
    let mut words = attrs.lines().next().unwrap_or_default().splitn(4, ' ');
    let mut count = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let (failures, crashes, due_ms) = (count(), count(), count());
    let options = words.next().unwrap_or_default();
    let fixed = options
        .split(' ')
        .find_map(|word| word.strip_prefix("expires_by="));
    let fixed_ms = fixed.and_then(|ms| ms.parse().ok()).unwrap_or(0);
    let numbers = [score, failures, crashes];
    let options = stored::as_pushed(options);
    let state = stored::words(&id, &state, numbers, record[3], &options);
    MovedItem(id, state, due_ms, fixed_ms)
}

fn texts(batch: &[u8]) -> Option<Vec<&[u8]>> {
    let (count, mut rest) = match batch {
        [head @ 0x90..=0x9f, rest @ ..] => (usize::from(head & 15), rest),
        [0xdc, rest @ ..] => length(rest, 2)?,
        [0xdd, rest @ ..] => length(rest, 4)?,
        _ => return None,
    };
    let mut texts = Vec::with_capacity(count);
    for _ in 0..count {
        let (bytes, after) = match rest {
            [head @ 0xa0..=0xbf, after @ ..] => (usize::from(head & 31), after),
            [0xd9, after @ ..] => length(after, 1)?,
            [0xda, after @ ..] => length(after, 2)?,
            [0xdb, after @ ..] => length(after, 4)?,
            _ => return None,
        };
        let (text, after) = after.split_at_checked(bytes)?;
        texts.push(text);
        rest = after;
    }
    Some(texts)
}

/// A length in so many bytes, and what follows.
fn length(bytes: &[u8], size: usize) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_at_checked(size)?;
    let digit = |sum: usize, byte: &u8| sum << 8 | usize::from(*byte);
    Some((length.iter().fold(0, digit), rest))
}

#[cfg(test)]
mod tests {
    use dueq_testkit::Server;

    use super::*;

    #[test]
    fn a_batch_of_the_server_is_read() -> anyhow::Result<()> {
        let server = Server::start(&[])?;
        let long = "x".repeat(300);
        let script = "return cmsgpack.pack({'a', 'scheduled', '1700000000000', ARGV[1], '1 2 1600000000000 \
            cost=3 expires_by=7 expires=+5\\nwhy', '\\5a', 'recent', '9', '', '', 'b', 'dead', '5', '', ''})";
        let mut connection = redis::Client::open(server.url())?.get_connection()?;
        let batch: Vec<u8> = redis::cmd("EVAL")
            .arg(script)
            .arg(0)
            .arg(&long)
            .query(&mut connection)?;
        let item =
            |id: &str, state: &str, due, fixed| MovedItem(id.into(), state.into(), due, fixed);
        let wanted = vec![
            item(
                "a",
                "IS scheduled 1700000000000 1 2 0 300 cost=3 expires=+5",
                1_600_000_000_000,
                7,
            ),
            item("b", "IS dead 5 0 0 0 0", 0, 0),
        ];
        assert_eq!(items(&batch), Some(wanted));
        assert_eq!(items(&batch[..batch.len() - 1]), None);
        assert_eq!(items(b"no batch"), None);
        Ok(())
    }
}
