//! The frame around each page: head, navigation, caller, preferences, problems of the server.

use axum::http::HeaderMap;
use axum::http::header::COOKIE;

use crate::dashboard::assets::{ICON, SCRIPT, STYLE};
use crate::dashboard::show::{Clock, Zone};
use crate::edge::auth::{Principal, Right, Via};
use crate::wire::about::Finding;
use crate::work::App;

/// The entry of the navigation that a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Here {
    Queues,
    Traffic,
    Schedules,
    Queue,
    Messages,
    Dead,
    Operations,
    Workers,
    Server,
    Search,
    Nowhere,
}

/// Who looks at the page, and what they may do.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) name: String,
    pub(super) roles: Vec<&'static str>,
    /// Whether the caller can log out.
    pub(super) has_session: bool,
    pub(super) may_produce: bool,
    pub(super) may_operate: bool,
    pub(super) may_read_payloads: bool,
    pub(super) is_read_only: bool,
}

impl Caller {
    pub(super) fn new(principal: &Principal, app: &App) -> Self {
        let may =
            |right: Right| principal.has(right) && (right.is_read() || !app.edge.is_read_only);
        Self {
            name: principal.name().to_owned(),
            roles: principal.roles().iter().map(|role| role.name()).collect(),
            has_session: principal.via() == Via::Session,
            may_produce: may(Right::Produce),
            may_operate: may(Right::Operate),
            may_read_payloads: may(Right::ReadPayload),
            is_read_only: app.edge.is_read_only,
        }
    }
}

/// The preferences that the browser keeps in cookies.
#[derive(Debug, Clone, Default)]
pub(super) struct Preferences {
    zone: Option<String>,
    theme: Theme,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Theme {
    /// Follows the setting of the operating system.
    #[default]
    System,
    Light,
    Dark,
}

pub(super) const ZONE_COOKIE: &str = "dueq_zone";
pub(super) const THEME_COOKIE: &str = "dueq_theme";

impl Theme {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [Self::System, Self::Light, Self::Dark];
        all.into_iter().find(|theme| theme.name() == name)
    }
}

impl Preferences {
    /// Reads the cookies. A cookie that cannot be read counts as absent.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let cookies = headers.get_all(COOKIE).iter();
        let pairs: Vec<_> = cookies
            .filter_map(|header| header.to_str().ok())
            .flat_map(|header| header.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .collect();
        let value = |name: &str| pairs.iter().find(|(cookie, _)| *cookie == name);
        Self {
            zone: value(ZONE_COOKIE).map(|(_, value)| (*value).to_owned()),
            theme: value(THEME_COOKIE)
                .and_then(|(_, value)| Theme::named(value))
                .unwrap_or_default(),
        }
    }

    pub(super) fn zone(&self) -> Zone {
        let zone = self.zone.as_deref().map(Zone::named);
        zone.and_then(Result::ok).unwrap_or_default()
    }
}

/// The data of the template `base.html`.
pub(super) struct Frame {
    pub(super) title: String,
    pub(super) here: Here,
    /// The base path that stands before each address.
    pub(super) base: String,
    /// The address of this page, below the base path.
    pub(super) address: String,
    pub(super) theme: &'static str,
    pub(super) zone: String,
    pub(super) now_ms: u64,
    pub(super) caller: Option<Caller>,
    /// The queue's name, as text and as a path segment.
    pub(super) queue: Option<(String, String)>,
    /// Why the numbers on the page may be old.
    pub(super) redis: Option<String>,
    /// The worst findings about the server, and the number of further findings.
    pub(super) findings: Vec<Finding>,
    pub(super) more_findings: usize,
    /// The sentence about the change that led to this page.
    pub(super) done: Option<&'static str>,
    pub(super) style: &'static str,
    pub(super) script: &'static str,
    pub(super) icon: &'static str,
}

impl Frame {
    pub(super) fn new(
        title: String,
        here: Here,
        base: String,
        address: String,
        preferences: &Preferences,
        caller: Option<Caller>,
    ) -> Self {
        Self {
            title,
            here,
            base,
            address,
            theme: preferences.theme.name(),
            zone: preferences.zone().name().to_owned(),
            now_ms: 0,
            caller,
            queue: None,
            redis: None,
            findings: Vec::new(),
            more_findings: 0,
            done: None,
            style: &STYLE.path,
            script: &SCRIPT.path,
            icon: &ICON.path,
        }
    }

    pub(super) fn of_queue(mut self, queue: Option<&str>) -> Self {
        self.queue = queue.map(|name| (name.to_owned(), segment(name)));
        self
    }

    pub(super) fn at(mut self, clock: &Clock) -> Self {
        clock.zone().name().clone_into(&mut self.zone);
        self.now_ms = clock.now_ms();
        self
    }

    pub(super) fn with_redis(mut self, redis: Option<String>) -> Self {
        self.redis = redis;
        self
    }

    /// Keeps the worst findings for the frame, the worst first. The server page shows all of them.
    pub(super) fn with_findings(mut self, findings: &[Finding]) -> Self {
        if self.here != Here::Server {
            let shown = findings.len().min(MAX_FINDINGS);
            self.findings = findings[..shown].to_vec();
            self.more_findings = findings.len() - shown;
        }
        self
    }

    /// The time zones that the preferences form suggests.
    pub(super) fn zones(&self) -> &'static [&'static str] {
        &ZONES
    }

    /// Shows a sentence about the form that led to this page. Only the words in `DONE` have a
    /// sentence: the word comes from the address, which anybody can write.
    pub(super) fn did(mut self, word: Option<&str>) -> Self {
        let sentence = word.and_then(|word| DONE.iter().find(|(known, _)| *known == word));
        self.done = sentence.map(|(_, sentence)| *sentence);
        self
    }

    /// Whether Redis does not answer: what the page shows is old, or missing.
    pub(super) fn is_away(&self) -> bool {
        self.redis.is_some()
    }

    pub(super) fn is(&self, here: Here) -> bool {
        self.here == here
    }
}

/// The most findings that the frame shows.
const MAX_FINDINGS: usize = 3;

/// Common time zones, from west to east.
const ZONES: [&str; 24] = [
    "UTC",
    "Pacific/Honolulu",
    "America/Anchorage",
    "America/Los_Angeles",
    "America/Denver",
    "America/Chicago",
    "America/New_York",
    "America/Sao_Paulo",
    "Europe/London",
    "Europe/Lisbon",
    "Europe/Paris",
    "Europe/Berlin",
    "Europe/Madrid",
    "Africa/Lagos",
    "Africa/Johannesburg",
    "Europe/Athens",
    "Europe/Istanbul",
    "Asia/Dubai",
    "Asia/Kolkata",
    "Asia/Singapore",
    "Asia/Shanghai",
    "Asia/Tokyo",
    "Australia/Sydney",
    "Pacific/Auckland",
];

/// The words of `?did=`, and their sentences.
const DONE: &[(&str, &str)] = &[
    ("paused", "The queue is paused: workers claim nothing."),
    ("resumed", "The queue is open again."),
    (
        "closed",
        "The queue is closed for that time: workers claim nothing until then.",
    ),
    ("limits", "The limits are set, from the next claim on."),
    ("pushed", "The message is pushed."),
    (
        "replaced",
        "The new message has replaced the one that waited.",
    ),
    (
        "follows",
        "A handler has a message of this id. The new one follows it.",
    ),
    (
        "remembered",
        "Nothing was pushed: the queue remembers this id of a message that has ended.",
    ),
    ("moved", "The message has its new due time."),
    ("due", "The message is due now."),
    (
        "cancelled",
        "The message is cancelled: it will never be delivered.",
    ),
    ("undone", "The message is back, with its id and due time."),
    (
        "requeued",
        "The message is due again; its attempts begin again at 0.",
    ),
    (
        "next_cancelled",
        "The message that was to follow is cancelled. The one that a handler has goes on.",
    ),
    (
        "lease_ended",
        "The lease is ended: the message is delivered again.",
    ),
    (
        "lease_died",
        "The lease is ended. The message has crashed too often, and is dead.",
    ),
    (
        "marked",
        "The message will be dead when its lease ends, unless its handler acks it.",
    ),
    (
        "buried",
        "The message is dead: no handler gets it. A requeue brings it back.",
    ),
    ("was_dead", "The message was dead already."),
    ("removed", "The dead message is removed."),
    ("already", "The message was due already."),
    (
        "there",
        "The queue has a message of this id. Nothing was changed.",
    ),
    (
        "used",
        "Nothing was changed: since that cancel the id was cancelled again or pushed again, perhaps by an undo.",
    ),
    (
        "nothing_selected",
        "Nothing was selected, so nothing was changed.",
    ),
    ("no_queue", "There is no queue of this name."),
    (
        "stopping",
        "The operation was asked to stop: it ends its step.",
    ),
    (
        "drained",
        "The process is drained: it takes nothing new, and ends what it has.",
    ),
    ("undrained", "The process takes messages again."),
    (
        "drained_in_part",
        "The process is drained, but not in each queue: in some, 100 workers are drained already.",
    ),
    (
        "reached_in_part",
        "This was done, but Redis did not answer for each queue. Do it again.",
    ),
    ("no_process", "The process has no live worker any more."),
    ("triggered", "A tick was made."),
    ("schedule_paused", "The schedule is paused."),
    ("schedule_resumed", "The schedule is active again."),
    (
        "schedule_removed",
        "The schedule is removed; its ticks stay.",
    ),
];

/// The name, encoded as a path segment.
pub(super) fn segment(name: &str) -> String {
    dueq_input::id_path(name.as_bytes())
}
