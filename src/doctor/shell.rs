//! Commands to paste: whatever an id or a name holds, a shell takes it for one word, and a terminal for text.

/// These bytes as one word of a POSIX shell, in characters that no terminal obeys.
///
/// Word and text alike: `order:42`, `'it'\''s'`, `"$(printf 'a\0339b')"`. Only a line end that is the last byte is lost, as no id
/// and no name has one.
#[doc(hidden)] // For the program `dueq`, which prints commands, too.
pub fn shell_word(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| text.chars().all(is_shown));
    match text {
        Some("") => "''".to_owned(),
        Some(text)
            if text
                .chars()
                .all(|c| c.is_alphanumeric() || "_-.:/@%+,".contains(c)) =>
        {
            text.to_owned()
        }
        Some(text) => format!("'{}'", text.replace('\'', r"'\''")),
        None => {
            let mut word = String::from("\"$(printf '");
            for chunk in bytes.utf8_chunks() {
                for c in chunk.valid().chars() {
                    match c {
                        '%' => word.push_str("%%"),
                        // An exclamation mark within double quotes calls up the history of an interactive shell.
                        _ if is_shown(c) && !"'\\!\"`$".contains(c) => word.push(c),
                        _ => octal(&mut word, c.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
                octal(&mut word, chunk.invalid());
            }
            word + "')\""
        }
    }
}

/// Whether it is seen as what it is.
fn is_shown(c: char) -> bool {
    c == '\'' || c == '"' || c == '\\' || c.escape_debug().len() == 1
}

fn octal(word: &mut String, bytes: &[u8]) {
    word.extend(bytes.iter().map(|byte| format!("\\{byte:03o}")));
}

/// redis-cli at the server that `REDIS_URL` names: it does not read that variable by itself.
pub(crate) fn redis_cli(command: &str) -> String {
    format!("redis-cli -u \"$REDIS_URL\" {command}")
}

/// The program with this verb and its options; `--` comes before what would else be taken for an option.
pub(crate) fn dueq(verb: &str, words: &[&[u8]]) -> String {
    let separator = if words.iter().any(|word| word.starts_with(b"-")) {
        " --"
    } else {
        ""
    };
    let words: String = words
        .iter()
        .map(|word| format!(" {}", shell_word(word)))
        .collect();
    format!("dueq {verb}{separator}{words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_every_byte_that_an_id_may_have() {
        let every: Vec<u8> = (1..=255).filter(|byte| *byte != b'\n').collect();
        let words: [&[u8]; 14] = [
            b"order:42",
            b"",
            b"a b",
            b"it's \"so\" \\ $HOME `x` ${y} !!",
            b"~",
            b"#",
            b"a=b;c&d|e>f<g*h?[i]",
            b"--repair",
            b"\x1b[2J",
            b"\xff\xfe%d\\n!!`x`$x\"",
            "\u{202e}txt".as_bytes(),
            "\u{9b}31m f\u{fc}r \u{4f60}".as_bytes(),
            b"$(touch pwned)",
            &every,
        ];
        for word in words {
            let shown = shell_word(word);
            assert!(shown.chars().all(is_shown), "{shown:?}");
            let script = format!("printf '<%s>' {shown}");
            let read = std::process::Command::new("sh")
                .args(["-c", &script])
                .output()
                .expect("a shell");
            assert_eq!(read.stdout, [b"<", word, b">"].concat(), "{shown}");
        }
    }

    #[test]
    fn what_begins_like_an_option_comes_after_two_dashes() {
        assert_eq!(
            dueq("requeue", &[b"orders", b"order:42"]),
            "dueq requeue orders order:42"
        );
        assert_eq!(
            dueq("requeue", &[b"orders", b"--all"]),
            "dueq requeue -- orders --all"
        );
        assert_eq!(
            dueq("doctor --repair", &[b"-q"]),
            "dueq doctor --repair -- -q"
        );
    }
}
