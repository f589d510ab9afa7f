//! The counts of the metrics, with their names and help texts.

/// Defines the variants with their names and help texts.
macro_rules! counts {
    ($($(#[doc = $help:literal])+ $variant:ident $name:literal,)+) => {
        /// A count of [`Metrics`](crate::metrics::Metrics). Releases may add variants: an exporter
        /// should use [`Metrics::counts`](crate::metrics::Metrics::counts) instead of its own list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Counter {
            $($(#[doc = $help])+ $variant,)+
        }

        impl Counter {
            /// All counts.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name: lower case, words joined by `_`. It does not change between releases.
            ///
            /// ```
            /// assert_eq!(dueq::metrics::Counter::PushCreated.name(), "push_created");
            /// ```
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The help text, in one line.
            pub fn help(self) -> &'static str {
                match self { $(Self::$variant => concat!($($help),+).trim_ascii(),)+ }
            }
        }
    };
}

counts! {
    /// Pushes that stored a message.
    PushCreated "push_created",
    /// Pushes of an id that existed; nothing was changed. Repeated calls are included.
    PushExisting "push_existing",
    /// Pushes that rescheduled or replaced a scheduled or ready message.
    PushMoved "push_moved",
    /// Pushes whose message is kept until the handler that has its id is done.
    PushNext "push_next",
    /// Pushes of an id whose message has ended and that a window remembers; nothing was stored.
    PushRemembered "push_remembered",
    /// Pushes of an id that was handled or cancelled within the last seconds; nothing was stored.
    PushFinished "push_finished",
    /// Pushes that were refused for an option out of its range, or because the queue is full;
    /// nothing was stored.
    PushRefused "push_refused",
    /// Pushes that ended with another error and certainly stored nothing.
    PushFailed "push_failed",
    /// Pushes that ended with an error and may have stored the message.
    PushUnknown "push_unknown",
    /// Changes that the master applied and too few replicas or disks confirmed in time.
    Unconfirmed "unconfirmed",
    /// Messages cancelled.
    Cancelled "cancelled",
    /// Messages rescheduled.
    Rescheduled "rescheduled",
    /// Messages moved from the scheduled set to the ready list. Most due messages are claimed
    /// directly instead.
    Promoted "promoted",
    /// Messages taken back because their lease ran out: a worker crashed.
    Reaped "reaped",
    /// Deliveries granted.
    Claimed "claimed",
    /// Deliveries acked.
    Acked "acked",
    /// Deliveries settled by again.
    Repeated "repeated",
    /// Deliveries that failed and were scheduled again.
    Retried "retried",
    /// Deliveries that failed for the last time: the message is dead.
    Died "died",
    /// Deliveries released.
    Released "released",
    /// Deliveries buried by their handler: the message is dead.
    Buried "buried",
    /// Deliveries that a handler gave a later due time.
    Snoozed "snoozed",
    /// Deliveries given back because their receiver asked for a break; the queue was closed.
    Throttled "throttled",
    /// Deliveries whose message would expire before its next attempt: it was removed, as its push
    /// asked.
    Dropped "dropped",
    /// Payloads that did not decode; the messages were buried.
    Undecodable "undecodable",
    /// Settlements that found the lease lost or the message gone: they were late, or the reply to
    /// the first call was lost.
    SettledLate "settled_late",
    /// Settlements that ended with an error. A running worker repeats them. Otherwise, unless the
    /// settlement was applied, the message is delivered again when its lease runs out.
    SettleFailed "settle_failed",
    /// Leases extended.
    LeaseExtended "lease_extended",
    /// Deliveries whose lease was found lost.
    LeaseLost "lease_lost",
    /// Handlers that panicked.
    HandlerPanicked "handler_panicked",
    /// Handlers dropped because they exceeded the time limit.
    HandlerTimedOut "handler_timed_out",
    /// Calls to Redis that ended with an error, whether they were repeated or not. One call may
    /// contain many messages.
    CallFailed "call_failed",
    /// Failed calls that may have been applied.
    CallUnknown "call_unknown",
    /// Failed calls that Redis answered with a script error or an undecodable reply.
    ServerError "server_error",
    /// How often a worker found that the store was emptied or replaced.
    StoreEmptied "store_emptied",
    /// Ticks of schedules that handlers got, or that a claim by hand returned: each delivery counts.
    Ticks "ticks",
    /// Ticks made by hand: by trigger, by backfill, and by an apply with fire_now.
    Triggered "triggered",
    /// Lists of fires that got more fires.
    Refilled "refilled",
    /// Schedules whose list of fires was found empty. A worker counts each once, until it has fires.
    FoundDry "found_dry",
    /// Refills of one list that failed, because its fires cannot be computed or were refused. A worker
    /// tries again, and counts each try.
    RefillRefused "refill_refused",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Counter;

    #[test]
    fn count_names_are_unique_lower_case_identifiers() {
        let names: BTreeSet<_> = Counter::ALL.iter().map(|count| count.name()).collect();
        assert_eq!(names.len(), Counter::ALL.len());
        for (index, count) in Counter::ALL.iter().enumerate() {
            assert_eq!(*count as usize, index);
            assert!(
                count
                    .name()
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{}",
                count.name()
            );
            assert!(
                count.help().ends_with('.') && !count.help().contains('\n'),
                "{}",
                count.help()
            );
        }
    }
}
