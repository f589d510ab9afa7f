//! dueq
