//! A fuzzer for tests that needs no tools: runs a check on a corpus and on mutations of it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Default number of mutations per test.
const MUTATIONS: u64 = 20_000;
/// The greatest length of a mutation.
const LONGEST: usize = 4_096;

/// Inserted bytes: limits of numbers and formats, and control sequences of terminals, shells and
/// parsers.
const TOKENS: [&[u8]; 48] = [
    b"0",
    b"-1",
    b"1",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"4294967296",
    b"65536",
    b"1e308",
    b"nan",
    b"\r\n",
    b"\n",
    b"\0",
    b"\x1b[2J",
    b"\x7f",
    b"\xff",
    b"\xc2\x9b",
    "\u{202e}".as_bytes(),
    "\u{2028}".as_bytes(),
    "\u{1f600}".as_bytes(),
    b"'",
    b"\"",
    b"\\",
    b"`",
    b"$(",
    b"%",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"@",
    b"/",
    b"?",
    b"#",
    b"&",
    b"=",
    b"+",
    b"-",
    b" ",
    b"T",
    b"Z",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*2\r\n:1\r\n",
    b"ms",
    b"\\u0000",
];

/// Runs `check` on each line of the target in `fuzz/corpus` and on 20,000 mutations, or on mutations for
/// `DUEQ_FUZZ_SECONDS`. `DUEQ_FUZZ_SEED` (default 1) determines the mutations. `DUEQ_FUZZ_TARGET`
/// skips all other targets.
///
/// # Panics
/// Panics if the check does, with the bytes of that run, or if there is no corpus.
pub fn fuzz(target: &str, check: fn(&[u8])) {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let number = |name: &str| {
        variable(name).map(|text| {
            text.parse::<u64>()
                .unwrap_or_else(|_| panic!("{name}={text}"))
        })
    };
    if variable("DUEQ_FUZZ_TARGET").is_some_and(|only| only != target) {
        return;
    }
    let (names, corpus): (Vec<_>, Vec<_>) = corpus(target).into_iter().unzip();
    assert!(!corpus.is_empty(), "the corpus of {target} is empty");
    for (name, bytes) in names.iter().zip(&corpus) {
        run(check, bytes, &format!("{name} of {target}"));
    }
    let seed = number("DUEQ_FUZZ_SEED").unwrap_or(1);
    let limit = number("DUEQ_FUZZ_SECONDS").map(Duration::from_secs);
    let (start, mut random, mut count) = (Instant::now(), Random(seed), 0);
    while limit.map_or(count < MUTATIONS, |limit| start.elapsed() < limit) {
        let bytes = mutation(&corpus, &mut random);
        run(
            check,
            &bytes,
            &format!("mutation {count} of seed {seed} of {target}"),
        );
        count += 1;
    }
    println!(
        "{target}: {} inputs, {count} mutations of seed {seed}, {:.1} s",
        corpus.len(),
        start.elapsed().as_secs_f64()
    );
}

/// The inputs of a target in `fuzz/corpus` by name. Each line is `TARGET/NAME: INPUT`, escaped as in
/// a byte string.
///
/// # Panics
/// Panics if there is no corpus, or a line of it cannot be read.
#[must_use]
pub fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let input = |line: &str| {
        let (name, escaped) = line.split_once(':')?;
        let escaped = escaped.strip_prefix(' ').unwrap_or(escaped);
        Some((name.to_owned(), unescaped(escaped)?))
    };
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(target)?.strip_prefix('/'));
    let inputs = lines.map(|line| {
        input(line).unwrap_or_else(|| panic!("{}: {line} is no NAME: INPUT", path.display()))
    });
    inputs.collect()
}

/// The bytes of an escaped byte string; `None` if the text is not one.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b't' => b'\t',
                b'n' => b'\n',
                b'r' => b'\r',
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                quoted @ (b'\\' | b'\'' | b'"') => quoted,
                _ => return None,
            },
            plain => plain,
        });
    }
    Some(bytes)
}

fn run(check: fn(&[u8]), bytes: &[u8], what: &str) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(bytes))) {
        eprintln!("{what} is: b\"{}\"", bytes.escape_ascii());
        resume_unwind(panic);
    }
}

fn mutation(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + 1 + random.below(8)).min(bytes.len());
        let token = TOKENS[random.below(TOKENS.len())];
        match random.below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.below(256) as u8,
            2 => drop(bytes.splice(at..at, token.iter().copied())),
            3 => drop(bytes.splice(at..end, token.iter().copied())),
            4 => drop(bytes.drain(at..end)),
            5 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            6 => {
                let other = &corpus[random.below(corpus.len())];
                bytes.truncate(at);
                bytes.extend(&other[random.below(other.len() + 1)..]);
            }
            7 => other_number(&mut bytes, random),
            _ => other_line(&mut bytes, random),
        }
        bytes.truncate(LONGEST);
    }
    bytes
}

/// Replaces a number in the bytes by another one.
fn other_number(bytes: &mut Vec<u8>, random: &mut Random) {
    let starts = (0..bytes.len())
        .filter(|&at| bytes[at].is_ascii_digit() && (at == 0 || !bytes[at - 1].is_ascii_digit()));
    let starts: Vec<usize> = starts.collect();
    if starts.is_empty() {
        return;
    }
    let start = starts[random.below(starts.len())];
    let end = start
        + bytes[start..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
    let other = if random.below(2) == 0 {
        random.below(100).to_string().into_bytes()
    } else {
        TOKENS[random.below(9)].to_vec()
    };
    bytes.splice(start..end, other);
}

/// Removes or repeats a line, or swaps two lines.
fn other_line(bytes: &mut Vec<u8>, random: &mut Random) {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.is_empty() {
        return;
    }
    let (one, other) = (random.below(lines.len()), random.below(lines.len()));
    match random.below(3) {
        0 => drop(lines.remove(one)),
        1 => lines.insert(other, lines[one]),
        _ => lines.swap(one, other),
    }
    *bytes = lines.concat();
}

/// The generator SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * end as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_depend_on_the_seed_and_differ() {
        let corpus = [b"*2\r\n:17\r\n$3\r\nabc\r\n".to_vec(), b"48h".to_vec()];
        let some = |seed| {
            let mut random = Random(seed);
            (0..1_000)
                .map(|_| mutation(&corpus, &mut random))
                .collect::<Vec<_>>()
        };
        let first = some(1);
        assert_eq!(first, some(1));
        assert_ne!(first, some(2));
        let mut distinct = first.clone();
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 800, "{}", distinct.len());
        assert!(first.iter().all(|bytes| bytes.len() <= LONGEST));
    }

    #[test]
    fn escaped_input_is_read_back() {
        let every: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(unescaped(&every.escape_ascii().to_string()), Some(every));
        for broken in ["\\", "\\q", "\\x", "\\x4", "\\xg0"] {
            assert_eq!(unescaped(broken), None, "{broken}");
        }
    }

    #[test]
    #[should_panic(expected = "caught")]
    fn failing_check_is_caught() {
        // One input of the corpus of names contains a brace; none contains an exclamation mark.
        fuzz("name", |bytes| assert!(!bytes.contains(&b'{'), "caught"));
    }
}
