//! The checks by the names of their targets: those of the library, of the crate that reads input, of
//! the program and of the server.

/// The check of the target that `DUEQ_FUZZ_TARGET` names.
///
/// # Panics
/// Panics if the variable names no target.
#[must_use]
pub fn check() -> fn(&[u8]) {
    let target = std::env::var("DUEQ_FUZZ_TARGET").unwrap_or_default();
    let mut checks = dueq::checks::CHECKS
        .into_iter()
        .chain(dueq_cli::checks::CHECKS)
        .chain(dueq_input::checks::CHECKS)
        .chain(dueq_serve::checks::CHECKS);
    let found = checks.find_map(|(name, check)| (name == target).then_some(check));
    found.unwrap_or_else(|| panic!("DUEQ_FUZZ_TARGET={target} has no line in fuzz/corpus"))
}
