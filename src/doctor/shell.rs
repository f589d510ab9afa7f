//! Commands that can be pasted into a shell safely, whatever bytes an id or a name contains.

/// Quotes bytes as one word of a POSIX shell, without characters that control a terminal.
///
/// Examples: `order:42`, `'it'\''s'`, `"$(printf 'a\0339b')"`. A line feed as the last byte is
/// lost; no id and no name ends with one.
#[doc(hidden)] // Public for the program `dueq`, which also prints commands.
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
                        // In double quotes, an interactive shell expands `!` from its history.
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

/// Whether a terminal shows the character as itself.
fn is_shown(c: char) -> bool {
    c == '\'' || c == '"' || c == '\\' || c.escape_debug().len() == 1
}

fn octal(word: &mut String, bytes: &[u8]) {
    word.extend(bytes.iter().map(|byte| format!("\\{byte:03o}")));
}

/// A redis-cli command for the server in `REDIS_URL`, which redis-cli does not read itself.
pub(crate) fn redis_cli(command: &str) -> String {
    format!("redis-cli -u \"$REDIS_URL\" {command}")
}

/// A command of the program `dueq`. `--` precedes the words if one of them looks like an option.
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
    fn shell_reads_quoted_words_back_unchanged() {
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
    fn words_that_look_like_options_follow_two_dashes() {
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
