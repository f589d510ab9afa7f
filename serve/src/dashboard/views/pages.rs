//! Splits a list in memory into numbered pages.

use std::ops::Range;

/// The number of this page, and of all pages.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) number: usize,
    pub(super) count: usize,
    range: Range<usize>,
    /// The request's other parameters, encoded.
    query: String,
}

impl Pages {
    /// The page that the parameter names, or the nearest one that exists. Links to other pages keep
    /// `params`.
    pub(super) fn new(
        wanted: Option<&str>,
        length: usize,
        size: usize,
        params: &[(&str, &str)],
    ) -> Self {
        let count = length.div_ceil(size).max(1);
        let wanted = wanted.and_then(|page| page.parse::<usize>().ok());
        let number = wanted.unwrap_or(1).clamp(1, count);
        let from = (number - 1) * size;
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in params.iter().filter(|(_, value)| !value.is_empty()) {
            query.append_pair(name, value);
        }
        Self {
            number,
            count,
            range: from..length.min(from + size),
            query: query.finish(),
        }
    }

    /// The indices of the page's items in the list.
    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The query string of the previous page, if there is one.
    pub(super) fn before(&self) -> Option<String> {
        (self.number > 1).then(|| self.to(self.number - 1))
    }

    /// The query string of the next page, if there is one.
    pub(super) fn after(&self) -> Option<String> {
        (self.number < self.count).then(|| self.to(self.number + 1))
    }

    fn to(&self, number: usize) -> String {
        match self.query.as_str() {
            "" => format!("?page={number}"),
            query => format!("?{query}&page={number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_numbers_beyond_the_ends_give_the_nearest_page() {
        for (wanted, length, number, range) in [
            (None, 0, 1, 0..0),
            (Some("1"), 100, 1, 0..100),
            (Some("2"), 100, 1, 0..100),
            (Some("2"), 101, 2, 100..101),
            (Some("0"), 101, 1, 0..100),
            (Some("-1"), 101, 1, 0..100),
            (Some("18446744073709551616"), 101, 1, 0..100),
            (Some("99999999999"), 101, 2, 100..101),
        ] {
            let pages = Pages::new(wanted, length, 100, &[]);
            assert_eq!((pages.number, pages.range()), (number, range), "{wanted:?}");
        }
    }

    #[test]
    fn page_links_keep_and_encode_other_parameters() {
        let pages = Pages::new(Some("2"), 300, 100, &[("name", "a&b\""), ("sort", "")]);
        assert_eq!(pages.before().as_deref(), Some("?name=a%26b%22&page=1"));
        assert_eq!(pages.after().as_deref(), Some("?name=a%26b%22&page=3"));
        assert_eq!(Pages::new(None, 1, 100, &[]).after(), None);
    }
}
