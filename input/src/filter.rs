//! The words by which people select messages of a list: the same as flags, as fields of JSON and on
//! pages.

/// Selects messages by their error and by how often their attempts ended badly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// `error_text`: a part of the error, in any case.
    pub error_text: Option<String>,
    /// `min_failures`: the least number of failures.
    pub min_failures: Option<u32>,
    /// `min_crashes`: the least number of crashes.
    pub min_crashes: Option<u32>,
}

impl Filter {
    /// Whether it selects all messages.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it selects a message with these counts and this error.
    ///
    /// ```
    /// use dueq_input::Filter;
    ///
    /// let filter = Filter {
    ///     error_text: Some("Timeout".to_owned()),
    ///     min_failures: Some(2),
    ///     ..Filter::default()
    /// };
    /// assert!(filter.has(2, 0, "bank: timeout after 5 s"));
    /// assert!(!filter.has(1, 0, "bank: timeout after 5 s") && !filter.has(2, 0, "refused"));
    /// ```
    pub fn has(&self, failures: u32, crashes: u32, error: &str) -> bool {
        let has_text = |text: &String| error.to_lowercase().contains(&text.to_lowercase());
        self.min_failures.is_none_or(|least| failures >= least)
            && self.min_crashes.is_none_or(|least| crashes >= least)
            && self.error_text.as_ref().is_none_or(has_text)
    }
}
