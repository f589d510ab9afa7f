//! Searches, examinations, and what the caller may do.

use std::time::Duration;

use dueq::StoredMessage;
use dueq::admin::Checkup;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a message is.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct SearchResult {
    /// The messages with this id: one in a queue at most.
    pub(crate) found: Vec<Hit>,
    /// How many queues were asked.
    pub(crate) asked: usize,
    /// The queues that could not be read.
    pub(crate) failed: Vec<Failed>,
    /// The queues that were not asked, because there are more than 1,000.
    pub(crate) not_asked: Vec<String>,
    /// Whether all queues were asked, and could be read, that there were `names_age_ms` ago.
    pub(crate) complete: bool,
    /// As in the list of queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) names_age_ms: Option<u64>,
}

/// A message, without its payload.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Hit {
    pub(crate) queue: String,
    /// `scheduled`, `ready`, `leased` or `dead`.
    pub(crate) state: String,
    /// When it is due (scheduled, ready), when its lease ends (leased) or when it died (dead).
    pub(crate) time_ms: u64,
    /// How often a handler failed.
    pub(crate) failures: u32,
    /// How often a lease ran out.
    pub(crate) crashes: u32,
    /// What the last failure or burial said.
    pub(crate) error: String,
    pub(crate) payload_bytes: u64,
}

/// A queue that could not be read.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Failed {
    pub(crate) queue: String,
    pub(crate) error: String,
}

/// An examination.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Examination {
    /// Everything that is wrong.
    pub(crate) findings: Vec<Finding>,
    /// What is worth knowing and not wrong.
    pub(crate) remarks: Vec<Finding>,
    /// What could not be checked, and why.
    pub(crate) unchecked: Vec<Unchecked>,
    /// How old the examination is: at most 10 s.
    pub(crate) age_ms: u64,
}

/// Something that is wrong, or worth knowing.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Finding {
    /// A word for this kind of finding. It does not change between releases.
    pub(crate) code: String,
    /// The id, key, field or setting.
    pub(crate) subject: String,
    pub(crate) problem: String,
    pub(crate) consequence: String,
    /// The command that repairs it, or where to look.
    pub(crate) remedy: String,
}

/// What could not be checked.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Unchecked {
    pub(crate) what: String,
    pub(crate) why: String,
}

/// What the caller may do.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Session {
    /// The name of the caller.
    pub(crate) name: String,
    /// How the caller was recognised: `loopback`, `token`, `session`, `proxy` or `embedder`.
    pub(crate) via: String,
    pub(crate) roles: Vec<String>,
    /// What these roles and the server allow.
    pub(crate) rights: Vec<String>,
    /// Patterns of the queues that the caller may use.
    pub(crate) queues: Vec<String>,
    /// Whether the server answers reads only.
    pub(crate) read_only: bool,
}

impl Hit {
    pub(crate) fn new(queue: &str, stored: StoredMessage) -> Self {
        Self {
            queue: queue.to_owned(),
            state: stored.state.as_str().to_owned(),
            time_ms: stored.time_ms,
            failures: stored.failures,
            crashes: stored.crashes,
            error: stored.error,
            payload_bytes: stored.payload_bytes,
        }
    }
}

impl Examination {
    pub(crate) fn new(age: Duration, checkup: &Checkup) -> Self {
        let unchecked = checkup.unchecked.iter().map(|unchecked| Unchecked {
            what: unchecked.what.to_owned(),
            why: unchecked.why.clone(),
        });
        Self {
            findings: checkup.findings.iter().map(Finding::new).collect(),
            remarks: checkup.remarks.iter().map(Finding::new).collect(),
            unchecked: unchecked.collect(),
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Examination {
    /// Whether the examination has no findings.
    pub(crate) fn is_empty(&self) -> bool {
        self.findings.is_empty() && self.remarks.is_empty()
    }
}

impl Finding {
    pub(crate) fn new(finding: &dueq::admin::Finding) -> Self {
        Self {
            code: finding.code.to_owned(),
            subject: String::from_utf8_lossy(&finding.subject).into_owned(),
            problem: finding.problem.clone(),
            consequence: finding.consequence.to_owned(),
            remedy: finding.remedy.clone(),
        }
    }
}
