//! The fields of a form.

use axum::extract::{FromRequest, Request};

use crate::app::Shared;
use crate::body::{media_type, whole};
use crate::problem::{Code, Problem};

/// The most bytes of a form: a thousand ids of the longest kind fit.
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
        let body = whole(&app.bodies, &parts.headers, body, MAX).await?;
        let pairs = form_urlencoded::parse(&body.bytes);
        Ok(Self(pairs.into_owned().collect()))
    }
}
