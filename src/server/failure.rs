//! Translates an error of the Redis crates: its kind, and whether the call took effect.

use std::error::Error as _;

use redis::{ErrorKind as RedisKind, RedisError};

use crate::error::{Applied, ConnectionFault, Error, ErrorKind, printable};

/// The error of a call that was sent to `address`.
pub(crate) fn of_call(address: &str, error: RedisError) -> Error {
    if error.is_timeout() {
        return Error::with_source(
            ErrorKind::Timeout,
            Applied::Unknown,
            format!("redis at {address} did not answer in time"),
            error,
        );
    }
    let Some(code) = error.code().map(str::to_owned) else {
        return match error.kind() {
            RedisKind::AuthenticationFailed => denied(address, error),
            RedisKind::Io => lost(address, error),
            _ if error.is_connection_dropped() || error.is_unrecoverable_error() => {
                lost(address, error)
            }
            _ => {
                let message = format!(
                    "the reply of redis at {address} cannot be read: {}",
                    printable(&error.to_string())
                );
                Error::with_source(ErrorKind::Server, Applied::Unknown, message, error)
            }
        };
    };
    // Redis names the script in errors that it raises while the script runs, even in long ones.
    let in_script = error
        .detail()
        .is_some_and(|detail| detail.contains("script: "));
    let (code, detail) = (
        printable(&code),
        printable(error.detail().unwrap_or_default()),
    );
    let (kind, applied) = match code.as_str() {
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "READONLY" | "ASK"
        | "MISCONF" | "NOREPLICAS" => (ErrorKind::Unavailable, Applied::No),
        // A client of a cluster follows this redirection. To any other client it is final: every
        // repetition would get the same reply.
        "MOVED" => (ErrorKind::Unsupported, Applied::No),
        // The server became a replica while the call was blocked.
        "UNBLOCKED" => (ErrorKind::Unavailable, Applied::Unknown),
        // The server's scripts were flushed after this script was loaded. The next try loads it
        // again.
        "NOSCRIPT" => (ErrorKind::Unavailable, Applied::No),
        // The partition's map differs from the caller's: see `Error::is_remapped`.
        "REMAPPED" | "BEHIND" => (ErrorKind::Unavailable, Applied::No),
        "ERR" if detail.starts_with("max number of clients") => {
            (ErrorKind::Unavailable, Applied::No)
        }
        "OOM" => (ErrorKind::Full, Applied::No),
        // Raised within a script, which may have written before.
        _ if in_script && lacks_right(&code, &detail) => (ErrorKind::Denied, Applied::Unknown),
        "NOAUTH" | "WRONGPASS" | "NOPERM" => (ErrorKind::Denied, Applied::No),
        "LAYOUT" => (ErrorKind::Unsupported, Applied::No),
        "BADARGS" | "HELD" => (ErrorKind::InvalidInput, Applied::No),
        // Scripts read each key before they write, so these errors come before the first write.
        "BADKEYS" | "BADNOW" | "WRONGTYPE" => (ErrorKind::Server, Applied::No),
        // Redis does not roll back the writes of a script.
        _ if in_script => (ErrorKind::Server, Applied::Unknown),
        _ => (ErrorKind::Server, Applied::No),
    };
    let hint = match code.as_str() {
        "OOM" => " (its memory is full: raise maxmemory; workers drain it meanwhile)",
        "NOAUTH" | "WRONGPASS" => {
            " (give user and password in the URL: redis://USER:PASSWORD@HOST/, or the password by \
             --redis-password-file)"
        }
        "MISCONF" => " (it cannot persist: look at its log and disk)",
        "WRONGTYPE" => " (another program uses a key of this queue: `dueq doctor QUEUE` names it)",
        "READONLY" => " (it is a replica: redis-cli -u \"$REDIS_URL\" ROLE names its master)",
        "CLUSTERDOWN" => {
            " (it reaches no majority of masters, or slots are served by none: redis-cli -u \"$REDIS_URL\" CLUSTER NODES)"
        }
        "NOREPLICAS" => {
            " (too few replicas follow it: redis-cli -u \"$REDIS_URL\" INFO replication)"
        }
        "BUSY" => {
            " (a script runs for long: redis-cli -u \"$REDIS_URL\" SCRIPT KILL, or FUNCTION KILL, ends it)"
        }
        "MOVED" => {
            " (the queue is on another node of this cluster: connect with redis+cluster://, or let the user call INFO, so that the client finds the cluster)"
        }
        code if lacks_right(code, &detail) => {
            " (give the user the rights that `dueq acl ROLE QUEUE` lists)"
        }
        _ => "",
    };
    // A stopped script may have written, so the text must not say that the server refused the call.
    let did = if applied == Applied::No {
        "refused"
    } else {
        "stopped halfway"
    };
    let message = format!("redis at {address} {did}: {code} {detail}{hint}");
    Error::with_source(kind, applied, message, error).with_code(&code)
}

/// Whether the user lacks the right to run a command or to use its keys or channels. Within a script
/// no server has a code for that: Redis 7.0 has the first text, Redis 8.0 and Valkey 8 and 9 the
/// second.
fn lacks_right(code: &str, detail: &str) -> bool {
    let texts = ["The user executing the script ", "ACL failure in script: "];
    code == "NOPERM" || code == "ERR" && texts.iter().any(|text| detail.starts_with(text))
}

/// Whether the server said that it has no such function. Redis has no code of its own for that.
pub(crate) fn is_unknown_function(error: &Error) -> bool {
    let source = error
        .source()
        .and_then(|source| source.downcast_ref::<RedisError>());
    let detail = source.and_then(|source| source.detail());
    detail.is_some_and(|detail| detail.contains("Function not found"))
}

/// The error of connecting to `address`: no call was sent.
pub(crate) fn of_connecting(address: &str, error: RedisError) -> Error {
    if let Some((command, _)) = error
        .detail()
        .and_then(|detail| detail.split_once(", with args"))
    {
        // The reply is not quoted: a server that does not know HELLO or AUTH repeats their
        // arguments, which include the password.
        let message = format!("redis at {address} refused: {command}");
        return Error::new(ErrorKind::Unsupported, Applied::No, message);
    }
    match error.code() {
        Some(_) => of_call(address, error),
        None if error.kind() == RedisKind::AuthenticationFailed => denied(address, error),
        None => {
            let kind = if error.is_timeout() {
                ErrorKind::Timeout
            } else {
                ErrorKind::Unavailable
            };
            let reason = reason(&error);
            // An alert about a certificate that comes from the server is about the client's own
            // certificate.
            let hint = if reason.contains("received fatal alert") && reason.contains("Certificate")
            {
                " (redis refused the client certificate: renew the files of --cert and --key, which are \
                 read again for each new connection)"
            } else {
                ""
            };
            let message = format!("cannot reach redis at {address}: {reason}{hint}");
            Error::with_source(kind, Applied::No, message, error)
                .with_connection(ConnectionFault::Unreached)
        }
    }
}

fn denied(address: &str, error: RedisError) -> Error {
    let message = format!(
        "redis at {address} refused the user or password (WRONGPASS, or it has no such user): {}",
        reason(&error)
    );
    Error::with_source(ErrorKind::Denied, Applied::No, message, error)
}

fn lost(address: &str, error: RedisError) -> Error {
    let message = format!(
        "the connection to redis at {address} was lost: {}",
        reason(&error)
    );
    Error::with_source(ErrorKind::Unavailable, Applied::Unknown, message, error)
        .with_connection(ConnectionFault::Lost)
}

fn reason(error: &RedisError) -> String {
    error
        .detail()
        .map_or_else(|| printable(&error.to_string()), printable)
}

/// The error if the server did not reply in time.
pub(crate) fn silent(address: &str, limit: std::time::Duration) -> Error {
    Error::new(
        ErrorKind::Timeout,
        Applied::Unknown,
        format!("redis at {address} did not answer within {limit:?}"),
    )
}

/// The error if another server became the master.
pub(crate) fn superseded(address: &str, applied: Applied) -> Error {
    let message = format!("redis at {address} is the master no more, another one is");
    Error::new(ErrorKind::Unavailable, applied, message)
}

/// The error if the server, or a device on the way, closed the connection.
pub(crate) fn hung_up(address: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        Applied::Unknown,
        format!("redis at {address} closed the connection"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_repeats_the_password_is_not_quoted() {
        let detail =
            "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 'hunter2'";
        let error = of_connecting(
            "here",
            redis::make_extension_error("ERR".into(), Some(detail.into())),
        );
        let text = format!("{error} {error:?}");
        assert!(
            text.contains("unknown command 'HELLO'") && !text.contains("hunter2"),
            "{text}"
        );
        assert_eq!(
            (error.kind(), error.was_applied()),
            (ErrorKind::Unsupported, Applied::No)
        );
    }

    #[test]
    fn errors_about_another_map_were_not_applied() {
        for code in ["REMAPPED", "BEHIND"] {
            let error = of_call(
                "here",
                redis::make_extension_error(code.into(), Some("this partition".into())),
            );
            assert!(error.is_remapped(), "{error}");
            assert_eq!(
                (error.kind(), error.was_applied()),
                (ErrorKind::Unavailable, Applied::No)
            );
        }
        let loading = of_call("here", redis::make_extension_error("LOADING".into(), None));
        assert!(!loading.is_remapped());
    }

    #[test]
    fn a_denied_command_inside_a_script_leaves_it_unknown() {
        let of = |code: &str, detail: &str| {
            of_call(
                "here",
                redis::make_extension_error(code.into(), Some(detail.into())),
            )
        };
        let redis_7_0 = [
            "can't run this command or subcommand",
            "can't access at least one of the keys mentioned in the command arguments",
            "can't publish to the channel mentioned in the command",
        ]
        .map(|why| ("ERR", format!("The user executing the script {why}")));
        let newer = [
            "No permissions to access a key",
            "User x has no permissions to run 'hset'",
        ]
        .map(|why| format!("ACL failure in script: {why}"));
        let newer = newer
            .into_iter()
            .flat_map(|why| [("ERR", why.clone()), ("NOPERM", why)]);
        for (code, why) in redis_7_0.into_iter().chain(newer) {
            for place in [
                "1234, on @user_script:1.",
                "dueq_push, on @user_function:1.",
            ] {
                let within = of(code, &format!("{why} script: {place}"));
                assert_eq!(
                    (within.kind(), within.was_applied()),
                    (ErrorKind::Denied, Applied::Unknown),
                    "{within}"
                );
                let stopped = format!("stopped halfway: {code}");
                assert!(within.to_string().contains(&stopped), "{within}");
            }
        }
        let refused = of("NOPERM", "User x has no permissions");
        assert!(refused.to_string().contains("refused: NOPERM"), "{refused}");
        assert_eq!(refused.was_applied(), Applied::No);
    }
}
