//! The reply to a remap.

use crate::error::Error;
use crate::protocol::replies::Reply;

/// What a remap did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remapped {
    /// The partition has the map, or after a `forward` a newer one.
    Done,
    /// It holds so many messages, and was left as it was.
    Has(u64),
    /// It remembers calls or messages for so many milliseconds more, and was left as it was.
    Remembers(u64),
    /// It has another epoch than the caller expected, and was left as it was; 0: no map.
    Epoch(u64),
}

impl Remapped {
    pub(crate) fn decode(mut reply: Reply) -> Result<Self, Error> {
        let text = reply.body.text()?;
        let (word, number) = text.split_once(' ').unwrap_or((&text, ""));
        match (word, number.parse()) {
            ("DONE", _) => Ok(Self::Done),
            ("HAS", Ok(messages)) => Ok(Self::Has(messages)),
            ("REMEMBERS", Ok(ms)) => Ok(Self::Remembers(ms)),
            ("EPOCH", Ok(epoch)) => Ok(Self::Epoch(epoch)),
            _ => Err(reply.body.unexpected(&format!("{text:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use redis::Value;

    use super::*;
    use crate::protocol::verbs::Verb;

    #[test]
    fn each_word_is_decoded_with_its_number() {
        let decode = |text: &str| {
            let mut header = vec![Value::Int(0); 6];
            header[1] = Value::BulkString(Vec::new());
            let parts = vec![Value::Array(header), Value::BulkString(text.into())];
            let reply = Reply::decode(Verb::Remap, Value::Array(parts), Instant::now());
            Remapped::decode(reply.expect("a reply"))
        };
        for (text, remapped) in [
            ("DONE", Remapped::Done),
            ("HAS 3", Remapped::Has(3)),
            ("REMEMBERS 12000", Remapped::Remembers(12_000)),
            ("EPOCH 0", Remapped::Epoch(0)),
        ] {
            assert_eq!(decode(text).expect(text), remapped);
        }
        for text in ["", "HAS", "HAS x", "EPOCH -1", "OK"] {
            assert!(decode(text).is_err(), "{text:?}");
        }
    }
}
