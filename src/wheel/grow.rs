//! How the two large vectors grow.

/// Makes room for one more: doubles while that is little, then adds an eighth.
///
/// A large block that is doubled leaves up to half of itself idle, and system allocators grow it without copying anyway.
#[inline]
pub(super) fn grow<E>(entries: &mut Vec<E>) {
    const LARGE: usize = 16 << 20;
    if entries.len() == entries.capacity() && size_of_val(entries.as_slice()) >= LARGE {
        entries.reserve_exact(entries.len() / 8);
    }
}
