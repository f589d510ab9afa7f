//! The actions that a message's state allows, each with the shell commands that do the same.

use crate::dashboard::frame::{Caller, segment};
use crate::wire::messages::Message;

/// A button, and the shell commands that do the same.
pub(super) struct Action {
    pub(super) word: &'static str,
    pub(super) label: &'static str,
    pub(super) hint: &'static str,
    pub(super) is_destructive: bool,
    pub(super) shell: String,
    pub(super) curl: String,
}

/// A placeholder for the name of the lease. Quoted names and ids never contain this character.
const THE_LEASE: char = '\u{1}';

struct Kind {
    word: &'static str,
    label: &'static str,
    hint: &'static str,
    is_destructive: bool,
    /// The subcommand of `dueq` that does the same. Empty: `dueq` has none.
    command: &'static str,
    /// The options that follow the id.
    options: &'static str,
    method: &'static str,
    /// The path that follows the address of the message.
    suffix: &'static str,
    body: Option<&'static str>,
}

const RUN_NOW: Kind = Kind {
    word: "run_now",
    label: "Run now",
    hint: "It is due at once.",
    is_destructive: false,
    command: "run-now",
    options: "",
    method: "PATCH",
    suffix: "",
    body: Some(r#"{"run_now": true}"#),
};
const RESCHEDULE: Kind = Kind {
    word: "reschedule",
    label: "Reschedule",
    hint: "It gets another due time, if it still has the present one.",
    is_destructive: false,
    command: "reschedule",
    options: " --delay 24h",
    method: "PATCH",
    suffix: "",
    body: Some(r#"{"delay": "24h"}"#),
};
const CANCEL: Kind = Kind {
    word: "cancel",
    label: "Cancel",
    hint: "It is never delivered. You can undo it for 10 s, unless somebody else pushes or cancels its id meanwhile.",
    is_destructive: true,
    command: "cancel",
    options: "",
    method: "DELETE",
    suffix: "",
    body: None,
};
const CANCEL_NEXT: Kind = Kind {
    label: "Cancel the next",
    hint: "The message that follows this one is never delivered. It cannot be undone.",
    ..CANCEL
};
const END_LEASE: Kind = Kind {
    word: "end_lease",
    label: "End the lease",
    hint: "It is delivered again, and a crash is counted. What its handler settles later changes nothing.",
    is_destructive: true,
    command: "end-lease",
    options: " --lease \u{1}",
    method: "POST",
    suffix: "/end-lease",
    body: Some("{\"lease\": \"\u{1}\"}"),
};
const BURY: Kind = Kind {
    word: "bury",
    label: "Bury",
    hint: "It is dead at once: no handler gets it. The queue goes on, and a requeue brings it back.",
    is_destructive: true,
    command: "bury",
    options: "",
    method: "POST",
    suffix: "/bury",
    body: Some(r#"{"reason": "it breaks its handlers"}"#),
};
const BURY_AFTER: Kind = Kind {
    label: "Bury when its lease ends",
    hint: "It is dead then, unless its handler acks it: no other handler gets it. The queue goes on.",
    ..BURY
};
const REQUEUE: Kind = Kind {
    word: "requeue",
    label: "Requeue",
    hint: "It is due at once, and its attempts begin again at 0.",
    is_destructive: false,
    command: "requeue",
    options: "",
    method: "POST",
    suffix: "/requeue",
    body: None,
};
const REMOVE: Kind = Kind {
    word: "remove",
    label: "Remove",
    hint: "It is gone for good: this cannot be undone.",
    is_destructive: true,
    command: "",
    options: "",
    method: "DELETE",
    suffix: "?dead=true",
    body: None,
};

/// The actions that the state allows and the caller has the right to.
pub(super) fn actions(message: &Message, caller: &Caller, queue: &str, id: &[u8]) -> Vec<Action> {
    let kinds: &[Kind] = match message.state.as_str() {
        "scheduled" => &[RUN_NOW, RESCHEDULE, CANCEL, BURY],
        "ready" => &[RESCHEDULE, CANCEL, BURY],
        "leased" if message.next_due_ms.is_some() => &[CANCEL_NEXT, END_LEASE],
        "leased" if message.is_to_bury == Some(true) => &[END_LEASE],
        "leased" => &[BURY_AFTER, END_LEASE],
        "dead" => &[REQUEUE, REMOVE],
        _ => &[],
    };
    let may = |kind: &&Kind| match kind.word {
        "requeue" | "end_lease" | "bury" => caller.may_operate,
        _ => caller.may_produce,
    };
    let lease = message.lease.as_deref().unwrap_or_default();
    let action = |kind: &Kind| Action {
        word: kind.word,
        label: kind.label,
        hint: kind.hint,
        is_destructive: kind.is_destructive,
        shell: shell(kind, queue, id).replace(THE_LEASE, lease),
        curl: curl(kind, queue, id).replace(THE_LEASE, lease),
    };
    kinds.iter().filter(may).map(action).collect()
}

fn shell(kind: &Kind, queue: &str, id: &[u8]) -> String {
    if kind.command.is_empty() {
        return String::new();
    }
    let (name, id) = (quoted(queue.as_bytes()), quoted(id));
    let is_option = |word: &str| word.trim_start_matches(['\'', '"']).starts_with('-');
    let dashes = if is_option(&name) || is_option(&id) {
        " --"
    } else {
        ""
    };
    format!("dueq {}{}{dashes} {name} {id}", kind.command, kind.options)
}

fn curl(kind: &Kind, queue: &str, id: &[u8]) -> String {
    let address = format!(
        "\"$DUEQ_SERVE/v1/queues/{}/messages/{}{}\"",
        segment(queue),
        dueq_input::id_path(id),
        kind.suffix
    );
    let body = kind.body.map_or_else(String::new, |body| {
        format!(" -H 'Content-Type: application/json' -d '{body}'")
    });
    format!("curl -sS -X {} {address}{body}", kind.method)
}

/// Quotes the bytes as one word for a POSIX shell. Bytes that a terminal may not show are written
/// in octal.
pub(in crate::dashboard::views) fn quoted(bytes: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/@+,=".contains(byte);
    let is_shown = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    if bytes.iter().all(is_shown) {
        return format!(
            "'{}'",
            String::from_utf8_lossy(bytes).replace('\'', "'\\''")
        );
    }
    let mut word = String::from("\"$(printf '");
    for byte in bytes {
        match byte {
            byte if is_plain(byte) => word.push(char::from(*byte)),
            byte => word.push_str(&format!("\\{byte:03o}")),
        }
    }
    word.push_str("')\"");
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_reads_a_quoted_word_as_the_original_bytes() {
        for word in [
            &b"order:42"[..],
            b"a b",
            b"it's $(date) `id` \"x\" \\",
            b"\xff\xfe% %s",
            "h\u{e9}llo\u{202e}".as_bytes(),
            b"-x",
            b"*",
        ] {
            let script = format!("printf %s {}", quoted(word));
            let output = std::process::Command::new("sh")
                .args(["-c", &script])
                .output();
            assert_eq!(output.expect("a shell").stdout, word, "{script}");
        }
    }

    #[test]
    fn ids_that_look_like_options_follow_two_dashes() {
        assert_eq!(shell(&CANCEL, "orders", b"-x"), "dueq cancel -- orders -x");
        assert_eq!(
            shell(&RESCHEDULE, "a b", b"1"),
            "dueq reschedule --delay 24h 'a b' 1"
        );
        assert_eq!(
            curl(&RUN_NOW, "orders", b"a/b"),
            "curl -sS -X PATCH \"$DUEQ_SERVE/v1/queues/orders/messages/~YS9i\" \
             -H 'Content-Type: application/json' -d '{\"run_now\": true}'"
        );
    }
}
