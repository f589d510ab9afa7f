//! How errors name an option: as the program's flag, or as the field of an object.

/// How errors name an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wording {
    /// As a flag of the program `dueq`: `--expires-at`. The lines of a file have this wording too,
    /// since the flags give what a line leaves out.
    Flags,
    /// As a field of a JSON object: `expires_at`.
    Fields,
}

impl Wording {
    /// The name of an option, given as the name of its field.
    ///
    /// ```
    /// use dueq_input::Wording;
    ///
    /// assert_eq!(Wording::Flags.name("expires_at"), "--expires-at");
    /// assert_eq!(Wording::Fields.name("expires_at"), "expires_at");
    /// ```
    pub fn name(self, field: &str) -> String {
        match self {
            Self::Flags => format!("--{}", field.replace('_', "-")),
            Self::Fields => field.to_owned(),
        }
    }

    /// An option with a value, ready to paste.
    ///
    /// ```
    /// use dueq_input::Wording;
    ///
    /// assert_eq!(Wording::Flags.example("at", "tomorrow 20:00"), "--at 'tomorrow 20:00'");
    /// assert_eq!(Wording::Fields.example("at", "tomorrow 20:00"), r#""at": "tomorrow 20:00""#);
    /// ```
    pub fn example(self, field: &str, value: &str) -> String {
        match self {
            Self::Flags => {
                let word = dueq::shell_word(value.as_bytes());
                format!("{} {word}", self.name(field))
            }
            Self::Fields => format!("\"{field}\": {value:?}"),
        }
    }

    /// What holds the options of a message.
    pub(crate) fn holder(self) -> &'static str {
        match self {
            Self::Flags => "line",
            Self::Fields => "object",
        }
    }
}
