//! What the workers of this process tell of it with their beats.

use std::fmt::Write;
use std::sync::{LazyLock, OnceLock};
use std::time::Instant;

/// The most bytes of a host's name.
const HOST_BYTES: usize = 64;
/// The most bytes of a program's name and version.
const PROGRAM_BYTES: usize = 64;

static PROGRAM: OnceLock<String> = OnceLock::new();

/// Sets what the workers and pullers of this process tell of it, such as `"shop 1.4.2"`: at most 64
/// bytes, of which others than printable ASCII become `_`. The default is the name of the
/// executable. Call it before the first worker starts: later calls change nothing.
///
/// ```
/// dueq::inspect::name_program(concat!("shop ", env!("CARGO_PKG_VERSION")));
/// ```
pub fn name_program(name: &str) {
    // A second call is documented to change nothing.
    let _ = PROGRAM.set(printable(name, PROGRAM_BYTES));
}

/// The host and the program of this process, as each beat tells them.
static THIS: LazyLock<String> = LazyLock::new(|| {
    let host = printable(&gethostname::gethostname().to_string_lossy(), HOST_BYTES);
    let program = PROGRAM.get_or_init(|| {
        let path = std::env::current_exe().unwrap_or_default();
        let name = path.file_stem().unwrap_or_default();
        printable(&name.to_string_lossy(), PROGRAM_BYTES)
    });
    format!("{} {program}", host.replace(' ', "_"))
});

/// What a worker that runs since `started` tells of itself with a beat: at most 200 bytes.
pub(crate) fn told(started: Instant, concurrency: usize, running: usize) -> String {
    let mut text = String::with_capacity(100);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "@{} {} {concurrency} {running} {}",
        started.elapsed().as_millis(),
        std::process::id(),
        *THIS
    );
    text
}

/// The text with at most so many bytes, all of them printable ASCII; `-` if it is empty.
fn printable(text: &str, most: usize) -> String {
    let plain = |c: char| if matches!(c, ' '..='~') { c } else { '_' };
    let text: String = text.trim().chars().map(plain).take(most).collect();
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_tells_is_short_and_has_six_words() {
        let text = told(Instant::now(), usize::MAX, usize::MAX);
        assert!(text.len() <= 200 && text.starts_with('@'), "{text}");
        let words: Vec<_> = text.splitn(6, ' ').collect();
        assert_eq!(
            words.get(1),
            Some(&&*std::process::id().to_string()),
            "{text}"
        );
        assert!(
            words.get(5).is_some_and(|program| program.contains("dueq")),
            "{text}"
        );
    }

    #[test]
    fn names_are_cut_and_printable() {
        assert_eq!(printable(" shop\n1.2\u{e9} ", 64), "shop_1.2_");
        assert_eq!(printable("", 64), "-");
        assert_eq!(printable(&"a".repeat(99), 64).len(), 64);
    }
}
