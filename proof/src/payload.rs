//! Payloads that name their message and version, so that a single wrong byte is found.

/// The payload of `id`, with `bytes` bytes but at least its head: id, version and length in words,
/// then noise derived from them. It contains its length, so that no prefix of a payload is another
/// payload.
pub fn make(id: &str, version: u32, bytes: usize) -> Vec<u8> {
    let words = |bytes: usize| format!("{id} {version} {bytes} ").into_bytes();
    let mut payload = words(bytes);
    // Shorter than its head: then the stated length is that of the head.
    while payload.len() > bytes && payload != words(payload.len()) {
        payload = words(payload.len());
    }
    let mut noise = seed(&payload);
    while payload.len() < bytes {
        noise = noise
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let left = bytes - payload.len();
        payload.extend(noise.to_be_bytes().iter().take(left));
    }
    payload
}

/// The version in a payload; 0 unless it is exactly a payload of `id`.
pub fn version_of(id: &str, payload: &[u8]) -> u32 {
    let words = payload
        .strip_prefix(id.as_bytes())
        .and_then(|rest| rest.strip_prefix(b" "));
    let digits = words.and_then(|rest| rest.split(|byte| *byte == b' ').next());
    let version = digits
        .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
        .unwrap_or(0);
    if make(id, version, payload.len()) == payload {
        version
    } else {
        0
    }
}

fn seed(bytes: &[u8]) -> u64 {
    bytes.iter().fold(14_695_981_039_346_656_037, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_recognised_and_a_wrong_byte_seen() {
        for bytes in [0, 8, 100, 65_536] {
            let mut payload = make("p1-7", 3, bytes);
            assert_eq!(version_of("p1-7", &payload), 3);
            assert_eq!(version_of("p1-8", &payload), 0);
            *payload.last_mut().expect("not empty") ^= 1;
            assert_eq!(version_of("p1-7", &payload), 0, "{bytes}");
        }
        assert_eq!(version_of("p1-7", b""), 0);
    }

    #[test]
    fn no_part_of_a_payload_is_a_payload() {
        for bytes in [0, 8, 9, 10, 11, 12, 100, 1_000] {
            let payload = make("p1-7", 3, bytes);
            assert!(
                payload.len() >= bytes && payload.len() <= bytes.max(12),
                "{bytes}"
            );
            for length in 0..payload.len() {
                assert_eq!(
                    version_of("p1-7", &payload[..length]),
                    0,
                    "{length} bytes of {bytes}"
                );
            }
        }
    }
}
