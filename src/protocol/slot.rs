//! The hash slots of a Redis Cluster.

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: the CRC-16 of the part between its first `{` and the next `}`, or of the
/// whole key if there is none or nothing between them.
pub(crate) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| {
        let (tag, _) = rest.split_once('}')?;
        (!tag.is_empty()).then_some(tag)
    });
    hash_slot(tag.unwrap_or(key).as_bytes())
}

/// The slot of the keys with this hash tag.
pub(crate) fn hash_slot(tag: &[u8]) -> u16 {
    Prefix::of(tag).slot_with(b"")
}

/// The beginning of many hash tags.
#[derive(Clone, Copy)]
pub(crate) struct Prefix {
    crc: u16,
}

impl Prefix {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            crc: crc16(0, bytes),
        }
    }

    /// The slot of the keys whose hash tag is this prefix and then `rest`.
    pub(crate) fn slot_with(self, rest: &[u8]) -> u16 {
        crc16(self.crc, rest) % SLOTS
    }
}

/// CRC-16/XMODEM, continued from the CRC of what comes before.
fn crc16(before: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(before, |crc, byte| {
        CRC_TABLE[usize::from((crc >> 8) as u8 ^ byte)] ^ (crc << 8)
    })
}

static CRC_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            value = (value << 1) ^ (0x1021 * (value >> 15));
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // Of CLUSTER KEYSLOT.
        for (key, slot) in [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("foo{}bar", 14_292),
            ("{foo}bar", 12_182),
            ("a{foo}{bar}", 12_182),
            ("foo{bar", 15_278),
        ] {
            assert_eq!(slot_of(key), slot, "{key}");
        }
    }
}
