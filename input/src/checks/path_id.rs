//! Ids in the path of a URL.

use super::check_error;
use crate::path_id::is_stable;
use crate::{id_path, path_id as read};

/// An id in a URL's path: each id is read back from its path, and from one whose bytes a client
/// has encoded. An accepted segment names one id, and a refusal gives its reason.
pub fn path_id(bytes: &[u8]) {
    if !bytes.is_empty() {
        check_path_of(bytes);
    }
    let Ok(segment) = std::str::from_utf8(bytes) else {
        return;
    };
    match read(segment) {
        Ok(id) => {
            assert!(!id.is_empty(), "{segment:?}");
            check_path_of(&id);
            if !segment.contains('%') && !segment.starts_with('~') {
                assert_eq!(id, segment.as_bytes());
            }
            assert!(id.len() <= segment.len());
        }
        Err(error) => check_error(&error),
    }
}

fn check_path_of(id: &[u8]) {
    let path = id_path(id);
    assert!(path.bytes().all(is_stable), "{path}");
    assert!(!matches!(path.as_str(), "" | "." | ".."), "{path}");
    assert_eq!(read(&path).as_deref(), Ok(id), "{path}");
    if std::str::from_utf8(id).is_ok() {
        let encoded: String = id.iter().map(|byte| format!("%{byte:02X}")).collect();
        assert_eq!(read(&encoded).as_deref(), Ok(id), "{encoded}");
    }
}
