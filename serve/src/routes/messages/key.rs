//! `Idempotency-Key`: gives ids to messages without one, so that a repeated request creates no
//! second message.

use std::fmt::Write;

use axum::http::HeaderMap;
use dueq::outcomes::PushOutcome;
use dueq::{Message, Queue, Receipt, StoredMessage};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

use crate::edge::auth::Principal;
use crate::edge::problem::{Code, Problem};

const HEADER: &str = "idempotency-key";
/// The most characters of a key.
const MAX_CHARS: usize = 200;
/// The most payloads that are compared concurrently.
const AT_ONCE: usize = 16;
/// The number of bytes of the hash that an id contains.
const HASH_BYTES: usize = 16;

/// The key of a request.
#[derive(Debug, Clone)]
pub(super) struct Key(String);

impl Key {
    /// Reads the key of the request, if it has one. The caller's name is part of the ids: otherwise
    /// two callers with one key would lose each other's messages.
    pub(super) fn read(headers: &HeaderMap, caller: &Principal) -> Result<Option<Self>, Problem> {
        let mut values = headers.get_all(HEADER).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let wrong = |reason: &str| {
            let detail = format!(
                "Idempotency-Key: {reason}; send one key of 1 to {MAX_CHARS} characters from ! to ~"
            );
            Err(Problem::new(Code::InvalidInput, detail))
        };
        if values.next().is_some() {
            return wrong("the header is there twice");
        }
        let key = value.as_bytes();
        if key.is_empty() || key.len() > MAX_CHARS {
            return wrong("the key is empty or too long");
        }
        if !key.iter().all(u8::is_ascii_graphic) {
            return wrong("the key has a space or another character");
        }
        let (kind, name) = (caller.kind().as_bytes(), caller.name().as_bytes());
        let hash = Sha256::digest([kind, name, key].join(&0));
        let mut text = String::with_capacity(2 * HASH_BYTES);
        for byte in hash.iter().take(HASH_BYTES) {
            let _ = write!(text, "{byte:02x}"); // writing to a `String` cannot fail
        }
        Ok(Some(Self(text)))
    }

    /// The id of the message with this number in the request. The number has ten digits, so that
    /// messages with one due time are delivered in the order of the request.
    fn id(&self, number: u64) -> String {
        format!("key:{}:{number:010}", self.0)
    }

    /// Gives the message the id of this key, and returns the fingerprint of its payload.
    pub(super) fn name(&self, message: Message, number: u64) -> (Message, Option<Fingerprint>) {
        let own = Fingerprint::of(message.payload());
        (message.id(self.id(number)), Some(own))
    }
}

/// What to compare with the payload of a message that already exists under the key's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) bytes: usize,
    hash: [u8; 32],
}

impl Fingerprint {
    pub(super) fn of(payload: &[u8]) -> Self {
        Self {
            bytes: payload.len(),
            hash: Sha256::digest(payload).into(),
        }
    }

    /// Refuses the push if the existing message has another payload. `stored` may have only the
    /// beginning of its payload.
    pub(super) fn compare(self, stored: &StoredMessage) -> Result<(), Problem> {
        let is_as_long = stored.payload_bytes == self.bytes as u64;
        if is_as_long && Self::of(&stored.payload) == self {
            return Ok(());
        }
        let detail = "nothing was changed: the queue has the message of this Idempotency-Key with another payload; \
                      send another body with another key";
        Err(Problem::new(Code::OtherBody, detail))
    }
}

/// Pushes many messages. If a message exists under the id of a key, its payload is compared.
pub(super) async fn push_many(
    queue: &Queue,
    messages: Vec<Message>,
    own: &[Option<Fingerprint>],
) -> Vec<Result<Receipt, Problem>> {
    let pushed = queue.push_many(messages).await.into_iter();
    let mut results: Vec<_> = pushed.map(|result| result.map_err(Problem::from)).collect();
    let (mut calls, mut numbers) = (JoinSet::new(), own.iter().enumerate());
    loop {
        while calls.len() < AT_ONCE
            && let Some((number, own)) = numbers.next()
        {
            let (Some(own), Some(Ok(receipt))) = (*own, results.get(number)) else {
                continue;
            };
            if let PushOutcome::Exists(_) = receipt.outcome() {
                let (queue, id) = (queue.clone(), receipt.id_bytes().to_vec());
                calls.spawn(async move { (number, queue.get_up_to(&id, own.bytes).await, own) });
            }
        }
        let (number, stored, own) = match calls.join_next().await {
            None => return results,
            Some(Ok(ended)) => ended,
            Some(Err(_)) => continue, // the task panicked, but the push is done
        };
        let compared = match stored {
            Ok(Some(stored)) => own.compare(&stored),
            Ok(None) => Ok(()), // the message has ended since
            Err(error) => Err(error.into()),
        };
        if let Err(problem) = compared {
            results[number] = Err(problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::edge::auth::Via;

    fn read(values: &[&[u8]], name: &str, via: Via) -> Result<Option<String>, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_bytes(value).expect("a header"));
        }
        let caller = Principal::new(name, via, Vec::new(), Vec::new());
        Ok(Key::read(&headers, &caller)?.map(|key| key.id(7)))
    }

    #[test]
    fn id_depends_on_caller_key_and_number() {
        let id = |key: &str, name: &str, via| {
            let id = read(&[key.as_bytes()], name, via);
            id.expect("valid").expect("a key")
        };
        let own = id("nightly", "ci", Via::Token);
        // The expected value is that of: printf 'token\0ci\0nightly' | sha256sum
        assert_eq!(own, "key:0373b25125152aa652deccbd54981988:0000000007");
        assert_eq!(own, id("nightly", "ci", Via::Session));
        for other in [
            id("nightl", "ci", Via::Token),
            id("nightly", "cd", Via::Token),
            id("nightly", "ci", Via::Proxy),
        ] {
            assert_ne!(own, other);
        }
    }

    #[test]
    fn idempotency_key_has_a_length_limit() {
        assert!(matches!(read(&[], "ci", Via::Token), Ok(None)));
        let (longest, long) = ([b'x'; 200], [b'x'; 201]);
        assert!(read(&[&longest], "ci", Via::Token).is_ok());
        let wrong: [&[&[u8]]; 6] = [
            &[b""],
            &[&long],
            &[b"a b"],
            &[b"a\t"],
            &[b"\xff"],
            &[b"a", b"a"],
        ];
        for values in wrong {
            assert!(read(values, "ci", Via::Token).is_err(), "{values:?}");
        }
    }
}
