//! The growth of the two large vectors.

/// Makes room for one more element: doubles up to 16 MiB, then adds an eighth.
///
/// Doubling a large block leaves up to half of it unused, and system allocators grow large blocks
/// without copying.
#[inline]
pub(super) fn grow<E>(entries: &mut Vec<E>) {
    const LARGE: usize = 16 << 20;
    if entries.len() == entries.capacity() && size_of_val(entries.as_slice()) >= LARGE {
        entries.reserve_exact(entries.len() / 8);
    }
}
