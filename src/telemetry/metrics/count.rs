//! What is counted: the names, and what each means.

/// Variants, their names and their meaning, said once.
macro_rules! counts {
    ($($(#[doc = $help:literal])+ $variant:ident $name:literal,)+) => {
        /// What is counted in [`Metrics`](crate::Metrics). Variants may come, so that an exporter takes
        /// [`Metrics::counts`](crate::Metrics::counts) and no list of its own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Count {
            $($(#[doc = $help])+ $variant,)+
        }

        impl Count {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its name, which stays: lower case, words joined by `_`.
            ///
            /// ```
            /// assert_eq!(dueq::Count::PushCreated.name(), "push_created");
            /// ```
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it means, in a line.
            pub fn help(self) -> &'static str {
                match self { $(Self::$variant => concat!($($help),+).trim_ascii(),)+ }
            }
        }
    };
}

counts! {
    /// Pushes that stored a message.
    PushCreated "push_created",
    /// Pushes of an id that was there; nothing was changed. Repetitions are among them.
    PushExisting "push_existing",
    /// Pushes that moved or replaced a waiting message.
    PushMoved "push_moved",
    /// Pushes of an id that was handled or cancelled within the last seconds; nothing was stored.
    PushFinished "push_finished",
    /// Pushes that were refused for an option out of its range, or because the queue is full; nothing was stored.
    PushRefused "push_refused",
    /// Pushes that ended with another error, and certainly stored nothing.
    PushFailed "push_failed",
    /// Pushes of which nobody knows whether they stored the message.
    PushUnknown "push_unknown",
    /// Changes that the master made and that too few replicas or disks confirmed in time.
    Unconfirmed "unconfirmed",
    /// Messages taken back by cancel.
    Cancelled "cancelled",
    /// Messages given another due time by reschedule.
    Rescheduled "rescheduled",
    /// Messages moved from scheduled to ready. Most are claimed without that, as soon as they are due.
    Promoted "promoted",
    /// Messages taken back because the lease of some worker ran out: its crash.
    Reaped "reaped",
    /// Deliveries granted.
    Claimed "claimed",
    /// Deliveries acked.
    Acked "acked",
    /// Deliveries settled with again.
    Repeated "repeated",
    /// Deliveries that failed and were scheduled anew.
    Retried "retried",
    /// Deliveries that failed for the last time: the message is dead.
    Died "died",
    /// Deliveries released.
    Released "released",
    /// Deliveries buried by their handler: the message is dead.
    Buried "buried",
    /// Settles that came too late, or whose first reply was lost: the lease was another's, or the message gone.
    SettledLate "settled_late",
    /// Settles that ended with an error. A worker that goes on makes them again; of others the message comes back when its lease runs out, if the settle did not act.
    SettleFailed "settle_failed",
    /// Leases extended.
    LeaseExtended "lease_extended",
    /// Deliveries of which it became known that their lease was lost.
    LeaseLost "lease_lost",
    /// Handlers that panicked.
    HandlerPanicked "handler_panicked",
    /// Handlers dropped because they exceeded the time limit.
    HandlerTimedOut "handler_timed_out",
    /// Calls to Redis that ended with an error, whether they were repeated or not. A call may be of many messages.
    CallFailed "call_failed",
    /// Of those, the ones of which nobody knows whether they were applied.
    CallUnknown "call_unknown",
    /// Of those, the ones that Redis answered with an error of a script, or with what is not the protocol.
    ServerError "server_error",
    /// How often a worker found the store emptied or replaced.
    StoreEmptied "store_emptied",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Count;

    #[test]
    fn names_differ_and_are_what_exporters_take() {
        let names: BTreeSet<_> = Count::ALL.iter().map(|count| count.name()).collect();
        assert_eq!(names.len(), Count::ALL.len());
        for (place, count) in Count::ALL.iter().enumerate() {
            assert_eq!(*count as usize, place);
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
