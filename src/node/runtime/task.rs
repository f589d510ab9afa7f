//! The internal tasks of a node by name.

/// Every internal task of a node. Handlers are not among them: they are the caller's code, and a
/// panic of one is a failure of its delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Owns the timers and the state of all attended queues, and decides which calls to make.
    Coordinator,
    /// Receives the notices of all attended queues on one subscription connection.
    Listener,
    /// Passes on the user's commands to add and remove queues.
    Relay,
    /// Looks for queues that match the patterns of the worker.
    Scanner,
    /// Makes one call of the coordinator, such as a beat, promote, reap or claim, and sends the
    /// reply as an event.
    Call,
    /// Extends one lease.
    Extension,
    /// Gathers settlements and extensions into calls, and sends them.
    Batcher,
    /// The thread of the precise timer: it sleeps until the next instant at which something is due.
    Timer,
    /// The thread on which the other tasks run.
    NodeThread,
}

impl Task {
    #[cfg(any(test, feature = "harness"))]
    pub(crate) const ALL: [Self; 9] = [
        Self::Coordinator,
        Self::Listener,
        Self::Relay,
        Self::Scanner,
        Self::Call,
        Self::Extension,
        Self::Batcher,
        Self::Timer,
        Self::NodeThread,
    ];

    /// The name of the task in errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Listener => "listener",
            Self::Relay => "command relay",
            Self::Scanner => "scanner",
            Self::Call => "call",
            Self::Extension => "lease extension",
            Self::Batcher => "batcher",
            Self::Timer => "timer thread",
            Self::NodeThread => "node thread",
        }
    }
}
