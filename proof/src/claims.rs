//! The hash `claims`: the leased messages, the lease of each, and what processes tell.

use std::collections::HashMap;

#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// For each id: the due time before the claim, and the token of the claim whose lease covers
    /// it. No token if the id has its own lease.
    of: HashMap<Vec<u8>, (u64, Option<Vec<u8>>)>,
    /// For each token: the ids granted by that claim, one a line, and how many of them its lease
    /// still covers.
    granted: HashMap<Vec<u8>, Vec<u8>>,
    counts: HashMap<Vec<u8>, u64>,
    /// The ids of which it is kept when their delivery began.
    starts: Vec<Vec<u8>>,
    /// The nodes whose process is kept.
    pub(crate) processes: Vec<Vec<u8>>,
}

impl Claims {
    /// Adds a field of the hash. Returns whether it can be read; an unreadable field is counted as
    /// a claim.
    pub(crate) fn add(&mut self, field: &[u8], value: Vec<u8>) -> bool {
        let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
        let read = match field {
            [1, token @ ..] => {
                self.granted.insert(token.to_vec(), value);
                return true;
            }
            [2, token @ ..] => {
                let count = number(&value);
                self.counts.insert(token.to_vec(), count.unwrap_or(0));
                count
            }
            [0, b'=', id @ ..] => {
                self.starts.push(id.to_vec());
                number(&value)
            }
            [0, b'@', node @ ..] => {
                self.processes.push(node.to_vec());
                return true;
            }
            id => {
                let (token, due) = value.split_at(value.len().min(16));
                let extended = due.strip_suffix(b"+");
                let token = if extended.is_some() {
                    None
                } else {
                    Some(token.to_vec())
                };
                let due = number(extended.unwrap_or(due));
                self.of.insert(id.to_vec(), (due.unwrap_or(0), token));
                due
            }
        };
        read.is_some()
    }

    /// The ids that have a claim.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.of.keys()
    }

    /// The ids of which a start is kept, but that have no lease of their own.
    pub(crate) fn starts_left(&self) -> Vec<Vec<u8>> {
        let is_left = |id: &&Vec<u8>| self.under(id).is_empty();
        self.starts.iter().filter(is_left).cloned().collect()
    }

    /// The ids under this lease, each with its original due time: all remaining ids of a claim, or
    /// one id with its own lease.
    pub(crate) fn under(&self, lease: &[u8]) -> Vec<(Vec<u8>, u64)> {
        let of = |id: &[u8], wanted: Option<&[u8]>| match self.of.get(id)? {
            (due, token) if token.as_deref() == wanted => Some((id.to_vec(), *due)),
            _ => None,
        };
        match lease.strip_prefix(&[1]) {
            None => of(lease, None).into_iter().collect(),
            Some(token) => {
                let ids = self
                    .granted
                    .get(token)
                    .into_iter()
                    .flat_map(|ids| ids.split(|byte| *byte == b'\n'));
                ids.filter_map(|id| of(id, Some(token))).collect()
            }
        }
    }

    /// The leases of claims whose count differs from their number of ids, or that have no ids.
    pub(crate) fn miscounted(&self) -> Vec<Vec<u8>> {
        let lease = |token: &Vec<u8>| [&[1][..], token].concat();
        let wrong = |token: &&Vec<u8>| {
            let held = self.under(&lease(token)).len() as u64;
            held == 0 || self.counts.get(*token) != Some(&held)
        };
        let uncounted = self
            .granted
            .keys()
            .filter(|token| !self.counts.contains_key(*token));
        let mut miscounted: Vec<_> = self
            .counts
            .keys()
            .chain(uncounted)
            .filter(wrong)
            .map(lease)
            .collect();
        miscounted.sort();
        miscounted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn lease_of_a_claim_covers_its_unextended_messages() {
        let mut claims = Claims::default();
        for (field, value) in [
            (format!("\u{1}{TOKEN}"), "a\nb\nc\nd".to_owned()),
            (format!("\u{2}{TOKEN}"), "2".to_owned()),
            ("a".to_owned(), format!("{TOKEN}5")),
            ("b".to_owned(), format!("{TOKEN}6+")),
            ("c".to_owned(), format!("{TOKEN}7")),
            ("d".to_owned(), "another token...8".to_owned()),
            ("\0=b".to_owned(), "5".to_owned()),
            ("\0@node".to_owned(), "1 host".to_owned()),
        ] {
            assert!(claims.add(field.as_bytes(), value.into_bytes()), "{field}");
        }
        let lease = format!("\u{1}{TOKEN}").into_bytes();
        assert_eq!(
            claims.under(&lease),
            [(b"a".to_vec(), 5), (b"c".to_vec(), 7)]
        );
        assert_eq!(claims.under(b"b"), [(b"b".to_vec(), 6)]);
        assert_eq!(claims.under(b"a"), [], "it has none of its own");
        assert_eq!(claims.miscounted(), Vec::<Vec<u8>>::new());
        assert_eq!(claims.starts_left(), Vec::<Vec<u8>>::new());
        assert!(claims.add(b"\0=a", b"5".to_vec()));
        assert_eq!(claims.starts_left(), [b"a"]);
        assert!(!claims.add(b"a", b"short".to_vec()));
        assert_eq!(claims.miscounted(), [lease]);
    }
}
