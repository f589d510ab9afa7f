//! Reads the append-only file of a private server: which changes the scripts made, in order. It
//! needs neither replies nor clients.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use dueq::admin::queue_keys;

/// The byte before the id of a next message in `attrs`.
const NEXT_MARK: u8 = 3;
/// The character after the claim of a delivery whose lease was extended; such a write is not a new
/// claim.
const EXTENDED: char = '+';
/// A field of a hash that begins with a byte below this is not an id.
const FIRST_OF_IDS: u8 = 32;

/// One change of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    /// The id got this payload: a new message, or a replacement.
    Stored { id: &'a str, payload: &'a str },
    /// The message waits until this time, in Unix ms.
    Due { id: &'a str, at_ms: u64 },
    /// A worker has claimed the message.
    Claimed { id: &'a str },
    /// A next message is kept until the delivery of the present one ends.
    Kept { id: &'a str, payload: &'a str },
}

/// Calls `each` for every change of the queue in the append-only file in this folder.
pub(super) fn changes(folder: &Path, queue: &str, mut each: impl FnMut(Change<'_>)) -> Result<()> {
    let keys = queue_keys(queue)?;
    let mut count = 0;
    for file in files(folder)? {
        let mut reader = BufReader::new(File::open(&file)?);
        while let Some(command) =
            command(&mut reader).with_context(|| format!("{} is damaged", file.display()))?
        {
            count += 1;
            changes_of(&command, &keys, &mut each)?;
        }
    }
    ensure!(
        count > 0,
        "the append-only file in {} is empty",
        folder.display()
    );
    Ok(())
}

/// The parts of the append-only file that contain commands, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let folder = folder.join("appendonlydir");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".incr.aof") {
            files.push(path);
        }
    }
    // A rewrite would make a second part; the server does none.
    ensure!(files.len() == 1, "{} parts of commands, not 1", files.len());
    Ok(files)
}

fn changes_of(
    command: &[String],
    keys: &[String],
    each: &mut impl FnMut(Change<'_>),
) -> Result<()> {
    let [name, key, rest @ ..] = command else {
        return Ok(());
    };
    let (scheduled, claims, messages, attrs) = (&keys[0], &keys[3], &keys[4], &keys[5]);
    let is_hash_write = ["HSET", "HSETNX"]
        .iter()
        .any(|set| name.eq_ignore_ascii_case(set));
    if is_hash_write {
        for pair in rest.chunks_exact(2) {
            let (field, value) = (pair[0].as_str(), pair[1].as_str());
            let first = field.bytes().next().unwrap_or(0);
            if key == attrs && first == NEXT_MARK {
                let (_, payload) = value.split_once('\n').context("a next message")?;
                each(Change::Kept {
                    id: &field[1..],
                    payload,
                });
            } else if first < FIRST_OF_IDS {
                continue;
            } else if key == messages {
                each(Change::Stored {
                    id: field,
                    payload: value,
                });
            } else if key == claims && !value.ends_with(EXTENDED) {
                each(Change::Claimed { id: field });
            }
        }
    } else if name.eq_ignore_ascii_case("ZADD") && key == scheduled {
        // Options such as NX precede the pairs.
        let options = rest.len() % 2 + usize::from(rest.len() % 2 == 0 && !is_number(rest)) * 2;
        for pair in rest[options..].chunks_exact(2) {
            if pair[1]
                .bytes()
                .next()
                .is_none_or(|first| first < FIRST_OF_IDS)
            {
                continue;
            }
            let at_ms = pair[0]
                .parse()
                .with_context(|| format!("the score {:?}", pair[0]))?;
            each(Change::Due {
                id: &pair[1],
                at_ms,
            });
        }
    }
    Ok(())
}

fn is_number(words: &[String]) -> bool {
    words
        .first()
        .is_some_and(|word| word.parse::<f64>().is_ok())
}

/// The next command as text; bytes that are not UTF-8 are replaced. `None` at the end of the file.
fn command(reader: &mut impl BufRead) -> Result<Option<Vec<String>>> {
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if !line.starts_with('#') {
            break; // lines with `#TS:` are timestamps
        }
    }
    let count = number(&line, '*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        line.clear();
        reader.read_line(&mut line)?;
        let mut bytes = vec![0; number(&line, '$')? + 2];
        reader.read_exact(&mut bytes)?;
        bytes.truncate(bytes.len() - 2);
        words.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(Some(words))
}

fn number(line: &str, kind: char) -> Result<usize> {
    match line.trim_end().strip_prefix(kind) {
        Some(text) => Ok(text.parse().with_context(|| format!("{line:?}"))?),
        None => bail!("{line:?}, not {kind} and a number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(commands: &[&[&str]]) -> Result<Vec<String>> {
        let keys = queue_keys("q")?;
        let mut found = Vec::new();
        for words in commands {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            changes_of(&words, &keys, &mut |change| {
                found.push(format!("{change:?}"))
            })?;
        }
        Ok(found)
    }

    #[test]
    fn command_is_read_up_to_its_end() -> Result<()> {
        let mut text = &b"#TS:1\r\n*2\r\n$4\r\nPING\r\n$1\r\n\xff\r\n"[..];
        assert_eq!(
            command(&mut text)?,
            Some(vec!["PING".to_owned(), "\u{fffd}".to_owned()])
        );
        assert_eq!(command(&mut text)?, None);
        assert!(command(&mut &b"*1\r\n$4\r\nPI"[..]).is_err());
        assert!(command(&mut &b"PING\r\n"[..]).is_err());
        Ok(())
    }

    #[test]
    fn changes_of_messages_are_found_among_marks() -> Result<()> {
        let found = all(&[
            &["MULTI"],
            &["HSET", "dueq:{q}:messages", "\0---", "", "a", "x", "b", "y"],
            &["HSETNX", "dueq:{q}:messages", "c", "z"],
            &["ZADD", "dueq:{q}:scheduled", "NX", "5", "a"],
            &["ZADD", "dueq:{q}:scheduled", "6", "b", "7", "c"],
            &["ZADD", "dueq:{q}:recent", "8", "\u{5}a"],
            &["HSET", "dueq:{q}:claims", "\u{1}token", "9", "a", "token"],
            &["HSET", "dueq:{q}:claims", "a", "token+"],
            &[
                "HSET",
                "dueq:{q}:attrs",
                "\u{3}a",
                "9 max_attempts=1\nnext",
                "a",
                "0 0 - \n",
            ],
            &["HSET", "dueq:{other}:messages", "a", "x"],
        ])?;
        let expected = [
            Change::Stored {
                id: "a",
                payload: "x",
            },
            Change::Stored {
                id: "b",
                payload: "y",
            },
            Change::Stored {
                id: "c",
                payload: "z",
            },
            Change::Due { id: "a", at_ms: 5 },
            Change::Due { id: "b", at_ms: 6 },
            Change::Due { id: "c", at_ms: 7 },
            Change::Claimed { id: "a" },
            Change::Kept {
                id: "a",
                payload: "next",
            },
        ];
        let expected: Vec<String> = expected
            .iter()
            .map(|change| format!("{change:?}"))
            .collect();
        assert_eq!(found, expected);
        Ok(())
    }
}
