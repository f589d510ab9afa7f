//! The format of batches: the messages that a receiver reads, and the results that it returns.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::{Delivery, Settlement};
use serde::Deserialize;
use serde_json::Value;

use crate::{output, time};

/// The most bytes of a wrong line that an error quotes.
const QUOTED: usize = 100;

/// A message as an object: queue, id, attempt, due_ms and payload.
pub(super) fn object(delivery: &Delivery) -> Value {
    let mut object = output::id_fields(delivery.id_bytes());
    object.insert("queue".to_owned(), delivery.queue().into());
    object.insert("attempt".to_owned(), delivery.attempt().into());
    object.insert("due_ms".to_owned(), delivery.due_ms().into());
    if let Some(trace_parent) = delivery.trace_parent() {
        object.insert("traceparent".to_owned(), trace_parent.into());
    }
    output::tick_fields(&mut object, delivery.tick());
    output::payload_fields(&mut object, delivery.payload());
    object.into()
}

/// The messages as lines of JSON.
pub(super) fn lines(deliveries: &[Delivery]) -> Vec<u8> {
    let mut lines = Vec::new();
    for delivery in deliveries {
        lines.extend_from_slice(output::json(&object(delivery)).as_bytes());
        lines.push(b'\n');
    }
    lines
}

/// The messages as an array of JSON.
pub(super) fn array(deliveries: &[Delivery]) -> Vec<u8> {
    let objects = deliveries.iter().map(object);
    Value::Array(objects.collect()).to_string().into_bytes()
}

/// The result of one message. Unknown names are refused: `aftr` would retry at the wrong time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: Option<String>,
    id_base64: Option<String>,
    result: Word,
    /// The delay of a retry.
    after: Option<String>,
    /// The reason of a retry or a burial.
    error: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Ack,
    Retry,
    Bury,
    Release,
}

/// Parses the output of a command: the settlement of each message; `None` for a message that no
/// line names.
pub(super) fn results(output: &[u8], ids: &[&[u8]]) -> Result<Vec<Option<Settlement>>, String> {
    let places: HashMap<&[u8], usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    let mut found = vec![None; ids.len()];
    for (number, text) in output.split(|byte| *byte == b'\n').enumerate() {
        let text = text.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let wrong = |reason: &str| {
            let quoted = output::visible(&text[..text.len().min(QUOTED)]);
            format!(
                "line {} of the command's output is no result: {reason}: {quoted}",
                number + 1
            )
        };
        let (id, settlement) = result(text).map_err(|reason| wrong(&reason))?;
        let place = places
            .get(&*id)
            .ok_or_else(|| wrong("its id is not in the batch"))?;
        if found[*place].replace(settlement).is_some() {
            return Err(wrong("its id has a result already"));
        }
    }
    Ok(found)
}

/// Reads the id and the settlement of one line.
fn result(text: &[u8]) -> Result<(Vec<u8>, Settlement), String> {
    // Serde would also read a list, and take its values for the fields in their order.
    if !text.starts_with(b"{") {
        return Err(
            "not a JSON object such as {\"id\": \"order:42\", \"result\": \"ack\"}".to_owned(),
        );
    }
    let line: Line = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let id = match (line.id_base64, line.id) {
        // If `id_base64` is given, `id` is only for people.
        (Some(id), _) => STANDARD
            .decode(id)
            .map_err(|error| format!("id_base64: {error}"))?,
        (None, Some(id)) => id.into_bytes(),
        (None, None) => return Err("it has no id".to_owned()),
    };
    if line.after.is_some() && line.result != Word::Retry {
        return Err("after is for the result retry only".to_owned());
    }
    let error = line
        .error
        .unwrap_or_else(|| "no error given by the command".to_owned());
    let settlement = match line.result {
        Word::Ack => Settlement::Ack,
        Word::Release => Settlement::Release,
        Word::Bury => Settlement::bury(error),
        Word::Retry => match line.after {
            Some(after) => Settlement::retry_after(delay(&after)?, error),
            None => Settlement::retry(error),
        },
    };
    Ok((id, settlement))
}

fn delay(text: &str) -> Result<Duration, String> {
    time::delay(text).map_err(|error| format!("after: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [&[u8]; 3] = [b"a", b"b", b"\xff"];

    #[test]
    fn result_lines_decide_single_messages() {
        let output = b"{\"id\":\"b\",\"result\":\"retry\",\"after\":\"5s\",\"error\":\"busy\"}\n\n\
            {\"id_base64\":\"/w==\",\"id\":\"\xef\xbf\xbd\",\"result\":\"bury\",\"error\":\"bad\"}";
        assert_eq!(
            results(output, &IDS).expect("results"),
            [
                None,
                Some(Settlement::retry_after(Duration::from_secs(5), "busy")),
                Some(Settlement::bury("bad")),
            ]
        );
        assert_eq!(results(b"", &IDS).expect("results"), [None, None, None]);
        let release = results(b"{\"id\":\"a\",\"result\":\"release\"}\n", &IDS).expect("results");
        assert_eq!(release[0], Some(Settlement::Release));
    }

    #[test]
    fn wrong_result_line_is_named_with_its_text() {
        for (output, reason) in [
            (
                "done",
                "line 1 of the command's output is no result: not a JSON object",
            ),
            ("\n[\"a\",\"ack\"]", "line 2"),
            ("{\"id\":\"a\"}", "missing field `result`"),
            ("{\"result\":\"ack\"}", "it has no id"),
            (
                "{\"id\":\"a\",\"result\":\"done\"}",
                "unknown variant `done`",
            ),
            (
                "{\"id\":\"a\",\"result\":\"ack\",\"x\":1}",
                "unknown field `x`",
            ),
            (
                "{\"id\":\"z\",\"result\":\"ack\"}",
                "its id is not in the batch",
            ),
            (
                "{\"id\":\"a\",\"result\":\"ack\",\"after\":\"1s\"}",
                "after is for",
            ),
            (
                "{\"id\":\"a\",\"result\":\"retry\",\"after\":\"soon\"}",
                "after: ",
            ),
            (
                "{\"id\":\"a\",\"result\":\"ack\"}\n{\"id\":\"a\",\"result\":\"ack\"}",
                "line 2 of the command's output is no result: its id has a result already",
            ),
        ] {
            let refused = results(output.as_bytes(), &IDS).expect_err(reason);
            assert!(refused.contains(reason), "{refused}");
        }
        let steering = results(b"\x1b[2J", &IDS).expect_err("no result");
        assert!(!steering.contains('\x1b'), "{steering}");
    }
}
