//! The one error type: what failed, whether to try again, and whether the call took effect.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// The error of any call of this library.
///
/// It answers three questions: [`kind`](Error::kind) says what failed,
/// [`is_retryable`](Error::is_retryable) whether the same call may succeed later, and
/// [`was_applied`](Error::was_applied) whether the call took effect. Its text names what failed,
/// why and, where possible, what to do. It never contains a password. It is cheap to clone.
///
/// ```
/// use dueq::{Applied, ErrorKind, Message};
/// use std::collections::BTreeMap;
///
/// // A map with keys that are no strings is not JSON.
/// let error = Message::json(&BTreeMap::from([((1, 2), "x")])).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidInput);
/// assert_eq!(error.was_applied(), Applied::No);
/// assert!(!error.is_retryable());
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    applied: Applied,
    message: String,
    /// The code of the server's error, such as `NOPERM`.
    code: Option<String>,
    connection: Option<ConnectionFault>,
    id: Option<Vec<u8>>,
    /// The names of refused schedules, each with the reason.
    schedules: Vec<(String, String)>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What happened to the connection of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionFault {
    /// The connection could not be opened: nothing was sent.
    Unreached,
    /// The connection was lost after the call was sent.
    Lost,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A name, id, payload, time or limit is out of its range. Nothing was changed.
    InvalidInput,
    /// The server cannot be reached, or does not serve calls now: it loads, fails over or is busy.
    Unavailable,
    /// No reply came in time.
    Timeout,
    /// The call took effect on the master, but too few replicas or disks confirmed it in time, or
    /// the wait for them failed. A failover may undo it. The same call waits again. A cancel does
    /// so within 12 s only: later it returns that the message is absent.
    Unconfirmed,
    /// The queue's limit of messages, or the server's memory, is reached.
    Full,
    /// The user or password is wrong, or the user lacks a right.
    Denied,
    /// The server is too old or may evict keys; or the queue has a layout that this version does
    /// not know, or is on another server of the cluster.
    Unsupported,
    /// The server replied with another error, or with something that is not the protocol.
    Server,
    /// A task of the library panicked: a defect of the library, or of the process's `tracing`
    /// subscriber.
    Internal,
}

/// Whether a failed call took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Applied {
    /// The call did not take effect: nothing was written.
    No,
    /// The call took effect, at least in part: something after that failed.
    Yes,
    /// Unknown: the reply was lost. Check with [`Queue::get`](crate::Queue::get), or repeat the
    /// call if that is harmless.
    Unknown,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, applied: Applied, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            applied,
            message: message.into(),
            code: None,
            connection: None,
            id: None,
            schedules: Vec::new(),
            source: None,
        }))
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        applied: Applied,
        message: impl Into<String>,
        source: impl StdError + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            kind,
            applied,
            message: message.into(),
            code: None,
            connection: None,
            id: None,
            schedules: Vec::new(),
            source: Some(Arc::new(source)),
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, Applied::No, message)
    }

    /// The call took effect on the master, and may be undone by a failover.
    pub(crate) fn unconfirmed(verb: &str, id: &[u8], shortfall: &str) -> Self {
        let message = format!(
            "{verb} of message {:?}: the master has done it, but {shortfall}; a failover may undo it, so that the message may \
             exist or not: the same call again waits again",
            String::from_utf8_lossy(id)
        );
        let (kind, applied) = (ErrorKind::Unconfirmed, Applied::Yes);
        Self(Arc::new(Inner {
            kind,
            applied,
            message,
            code: None,
            connection: None,
            id: Some(id.to_vec()),
            schedules: Vec::new(),
            source: None,
        }))
    }

    /// Marks this error as that of a call whose earlier try may have been applied: `Unknown`.
    pub(crate) fn of_repeated(self) -> Self {
        Self(Arc::new(Inner {
            applied: Applied::Unknown,
            message: format!("{self} (an earlier try may have taken effect)"),
            source: Some(Arc::new(self.clone())),
            ..self.inner()
        }))
    }

    /// Turns this error into that of a call that follows one which ended with `earlier`:
    /// `Applied::Unknown` if the earlier call may have been applied.
    pub(crate) fn like(self, earlier: &Self) -> Self {
        match earlier.was_applied() {
            Applied::No => self,
            _ => self.of_repeated(),
        }
    }

    /// Marks this error as that of a call that only reads: it changed nothing.
    pub(crate) fn of_read(self) -> Self {
        match self.was_applied() {
            Applied::No => self,
            _ => Self(Arc::new(Inner {
                applied: Applied::No,
                ..self.inner()
            })),
        }
    }

    /// Adds the id of the message to this error, unless the call was not applied.
    pub(crate) fn of_message(self, id: &[u8]) -> Self {
        match self.was_applied() {
            Applied::No => self,
            _ => Self(Arc::new(Inner {
                id: Some(id.to_vec()),
                ..self.inner()
            })),
        }
    }

    /// Marks this error as that of a later step of a call; `done` says what earlier steps did.
    pub(crate) fn after(self, done: &str) -> Self {
        let applied = match self.was_applied() {
            Applied::No => Applied::Yes,
            applied => applied,
        };
        let message = format!("{self} ({done} before that; the same call again does the rest)");
        self.saying(applied, message)
    }

    /// Marks this error as that of a call that only some partitions applied; `done` says which.
    pub(crate) fn partly(self, done: &str) -> Self {
        let message = format!("{done}: {self} (the same call again does the rest)");
        self.saying(Applied::Yes, message)
    }

    /// Puts `what` in front of the text of this error.
    pub(crate) fn about(self, what: &str) -> Self {
        let message = format!("{what}: {self}");
        self.saying(self.was_applied(), message)
    }

    /// Marks this error as that of a call that follows an applied call, which `done` names.
    pub(crate) fn beside(self, done: &str) -> Self {
        let message = format!("{done}: {self}");
        self.saying(Applied::Yes, message)
    }

    fn saying(&self, applied: Applied, message: String) -> Self {
        Self(Arc::new(Inner {
            applied,
            message,
            ..self.inner()
        }))
    }

    /// Adds the code of the server's error to this error.
    pub(crate) fn with_code(self, code: &str) -> Self {
        Self(Arc::new(Inner {
            code: Some(code.to_owned()),
            ..self.inner()
        }))
    }

    /// Marks this error as that of a call whose connection failed.
    pub(crate) fn with_connection(self, fault: ConnectionFault) -> Self {
        Self(Arc::new(Inner {
            connection: Some(fault),
            ..self.inner()
        }))
    }

    /// Adds the schedules because of which an apply was refused, each with its reason.
    pub(crate) fn of_schedules(self, schedules: Vec<(String, String)>) -> Self {
        Self(Arc::new(Inner {
            schedules,
            ..self.inner()
        }))
    }

    /// Whether a partition refused the call because its map has another epoch than the call.
    pub(crate) fn is_remapped(&self) -> bool {
        self.is_behind() || self.code() == Some("REMAPPED")
    }

    /// Whether the partition's map is older than that of the call, or missing.
    pub(crate) fn is_behind(&self) -> bool {
        self.code() == Some("BEHIND")
    }

    /// Whether the server refused a claim because its token already has a lease.
    pub(crate) fn is_held(&self) -> bool {
        self.code() == Some("HELD")
    }

    pub(crate) fn connection(&self) -> Option<ConnectionFault> {
        self.0.connection
    }

    fn inner(&self) -> Inner {
        Inner::clone(&self.0)
    }

    /// What went wrong.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::ErrorKind;
    ///
    /// let error = orders.push("rate it").id("").await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidInput);
    /// # });
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later, without any other change.
    ///
    /// It does not say whether repeating the call is harmless: that is
    /// [`was_applied`](Error::was_applied).
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Unconfirmed | ErrorKind::Full
        )
    }

    /// Whether the call took effect.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Applied;
    ///
    /// let error = orders.push("rate it").id("").await.unwrap_err();
    /// assert_eq!(error.was_applied(), Applied::No);
    /// # });
    /// ```
    pub fn was_applied(&self) -> Applied {
        self.0.applied
    }

    /// The code of the server's error, such as `NOPERM`, `WRONGTYPE` or `LAYOUT`. For a payload
    /// above the limit it is `TOO_LARGE`. `None` for errors that are not a reply of the server.
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// Whether the connection failed: it could not be opened, or it was lost while the call waited
    /// for its reply.
    pub fn is_connection_error(&self) -> bool {
        self.0.connection.is_some()
    }

    /// The id of the message that the call was about, if the call took effect
    /// ([`Unconfirmed`](ErrorKind::Unconfirmed)) or may have taken effect ([`Applied::Unknown`]).
    /// The id of a push may have been made by the library.
    pub fn message_id(&self) -> Option<&[u8]> {
        self.0.id.as_deref()
    }

    /// The schedules because of which an [`apply`](crate::schedules::ScheduleSet::apply) was
    /// refused: the name of each, and the reason. Empty for any other error.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// let sync = || Schedule::every(Duration::from_secs(60)).name("sync");
    /// orders.schedules("mail").apply([sync()]).await?;
    /// let error = orders.schedules("billing").apply([sync()]).await.unwrap_err();
    /// let (name, why) = &error.refused_schedules()[0];
    /// assert_eq!((&**name, &**why), ("sync", "sync belongs to the set mail"));
    /// # });
    /// ```
    pub fn refused_schedules(&self) -> &[(String, String)] {
        &self.0.schedules
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("applied", &self.0.applied)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

/// The most bytes of a server's text that an error quotes.
const MAX_QUOTED_BYTES: usize = 1_000;

/// Makes a server's text fit for logs: one line, control characters escaped, at most about 1,000
/// bytes.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len().min(MAX_QUOTED_BYTES));
    for c in text.chars() {
        if printable.len() >= MAX_QUOTED_BYTES {
            printable.push('…');
            break;
        }
        if c.is_control() {
            printable.extend(c.escape_default())
        } else {
            printable.push(c)
        }
    }
    printable
}
/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    let borrowed = panic.downcast_ref::<&str>().copied();
    borrowed.or_else(owned).unwrap_or("no text")
}
