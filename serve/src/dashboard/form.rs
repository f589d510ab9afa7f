//! Forms: the fields that a browser sends, and the form that a page shows again because a field was
//! wrong, with what was typed.

use axum::extract::{FromRequest, Request};

use crate::dashboard::api::Failure;
use crate::dashboard::show::{self, Markup};
use crate::edge::body::{media_type, whole};
use crate::edge::problem::{Code, Problem};
use crate::work::Shared;

/// The most bytes of a form: a thousand ids of the greatest length fit.
const MAX_BYTES: usize = 512 << 10;

/// A form as browsers send it: `application/x-www-form-urlencoded`, of at most `MAX` bytes.
pub(super) struct Form<const MAX: usize = MAX_BYTES>(Vec<(String, String)>);

impl<const MAX: usize> Form<MAX> {
    /// The first value of this field.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The value of this field, unless it is empty.
    pub(super) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.trim().is_empty())
    }

    /// All fields with their values.
    pub(super) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// All values of this field: of boxes that are ticked, for example.
    pub(super) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(field, _)| field == name);
        named.map(|(_, value)| value.as_str())
    }
}

impl<const MAX: usize> FromRequest<Shared> for Form<MAX> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        if media_type(&parts.headers).as_deref() != Some("application/x-www-form-urlencoded") {
            let detail = "the body is no form: send application/x-www-form-urlencoded";
            return Err(Problem::new(Code::UnsupportedMediaType, detail));
        }
        let body = whole(&app.edge.bodies, &parts.headers, body, MAX).await?;
        let pairs = form_urlencoded::parse(&body.bytes);
        Ok(Self(pairs.into_owned().collect()))
    }
}

/// What the fields of a page show: their defaults; after a mistake what was typed, and the mistake
/// beside its field.
#[derive(Default)]
pub(super) struct Fields {
    typed: Vec<(String, String)>,
    mistake: Option<Mistake>,
}

struct Mistake {
    field: String,
    reason: String,
}

/// The fields of calls that a form has under another name.
const OTHER_NAMES: [(&str, &str); 1] = [("rate_window_ms", "rate")];

impl Fields {
    /// The fields of a form that is shown again without a mistake.
    pub(super) fn typed(typed: &[(String, String)]) -> Self {
        Self {
            typed: typed.to_vec(),
            mistake: None,
        }
    }

    /// The text of a text area.
    pub(super) fn value<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        let typed = self.typed.iter().find(|(field, _)| field == name);
        typed.map_or(default, |(_, value)| value.as_str())
    }

    /// The fields of a form that was refused because of one of them. The detail of the refusal begins
    /// with the field's name. `None` if the refusal has another reason.
    pub(super) fn refused(typed: &[(String, String)], failure: &Failure) -> Option<Self> {
        if failure.code() != Code::InvalidInput.word() {
            return None;
        }
        let detail = failure.detail();
        let end = detail.find(|c: char| !c.is_ascii_lowercase() && c != '_');
        let (name, reason) = detail.split_at(end?);
        let other = OTHER_NAMES.iter().find(|(other, _)| *other == name);
        let name = other.map_or(name, |(_, name)| name);
        typed.iter().find(|(field, _)| field == name)?;
        let reason = reason.strip_prefix(" is ").or(reason.strip_prefix(": "));
        let reason = reason.unwrap_or(detail);
        let reason = reason
            .strip_suffix("(nothing was changed)")
            .unwrap_or(reason);
        Some(Self {
            typed: typed.to_vec(),
            mistake: Some(Mistake {
                field: name.to_owned(),
                reason: show::text(reason.trim()),
            }),
        })
    }

    /// The attributes of an input: its value, and whether it has the mistake. `hint` is the id of the
    /// element that explains the field; empty for none.
    pub(super) fn input(&self, name: &str, default: &str, hint: &str) -> Markup {
        let mut attributes = format!(" value=\"{}\"", Markup::escaped(self.value(name, default)));
        let is_wrong = self.mistake_in(name).is_some();
        let ids = match (hint, is_wrong) {
            ("", false) => return Markup::of(attributes),
            ("", true) => format!("mistake-{name}"),
            (hint, false) => hint.to_owned(),
            (hint, true) => format!("mistake-{name} {hint}"),
        };
        attributes += &format!(" aria-describedby=\"{ids}\"");
        if is_wrong {
            // The browser scrolls to a field with the focus, also without a script.
            attributes += " aria-invalid=\"true\" autofocus";
        }
        Markup::of(attributes)
    }

    /// The mistake in this field, for display beside it.
    pub(super) fn mistake(&self, name: &str) -> Markup {
        Markup::of(self.mistake_in(name).map_or_else(String::new, |mistake| {
            let reason = Markup::escaped(&mistake.reason);
            format!("<p class=\"mistake other\" id=\"mistake-{name}\">{reason}. Nothing was changed.</p>")
        }))
    }

    pub(super) fn has_mistake(&self, name: &str) -> bool {
        self.mistake_in(name).is_some()
    }

    fn mistake_in(&self, name: &str) -> Option<&Mistake> {
        self.mistake
            .as_ref()
            .filter(|mistake| mistake.field == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(detail: &str) -> Option<Fields> {
        let typed = [("rate", "fast"), ("burst", "\"10\"")];
        let typed = typed.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let problem = Problem::new(Code::InvalidInput, detail);
        Fields::refused(&typed, &problem.into())
    }

    #[test]
    fn mistake_is_shown_at_its_field_with_what_was_typed() {
        let fields = refused("burst is 10: write 1 to 5 (nothing was changed)").expect("fields");
        let burst = fields.input("burst", "1", "hint").to_string();
        assert_eq!(
            burst,
            " value=\"&quot;10&quot;\" aria-describedby=\"mistake-burst hint\" aria-invalid=\"true\" autofocus"
        );
        assert!(
            fields
                .mistake("burst")
                .to_string()
                .contains(">10: write 1 to 5. Nothing")
        );
        assert_eq!(fields.input("rate", "", "").to_string(), " value=\"fast\"");
        assert_eq!(fields.mistake("rate").to_string(), "");
        assert_eq!(
            fields.input("pace", "100", "").to_string(),
            " value=\"100\""
        );
    }

    #[test]
    fn refusal_without_a_field_of_the_form_is_no_mistake() {
        for detail in ["pace: too fast", "the queue is gone", "", "Rate"] {
            assert!(refused(detail).is_none(), "{detail}");
        }
        assert!(
            refused("rate_window_ms is 0: write 1")
                .expect("fields")
                .has_mistake("rate")
        );
    }
}
