//! Decides which master a client uses, by the answers of Sentinels.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{Applied, Error, ErrorKind};
use crate::server::connect::pool::Server;
use crate::server::sentinel::{MasterReply, Sentinels};
use crate::telemetry::events;

/// How often the client asks the Sentinels without a hint from them.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// The master of one service that Sentinels monitor.
pub(crate) struct Master {
    pub(crate) sentinels: Sentinels,
    followed: Mutex<Followed>,
    /// Whether to accept a server that is too old or evicts keys.
    accept_unfit: bool,
    opened: Arc<AtomicU64>,
}

/// The decision of the Sentinels that the client follows now.
#[derive(Default)]
struct Followed {
    /// The master; `None` before the first decision, and while the named server is unfit.
    server: Option<Arc<Server>>,
    epoch: u64,
    /// The number of decisions followed so far. Rounds overlap, so a reply may be older than the
    /// present decision.
    decisions: u64,
    /// The number of the last decision with a lower epoch than the one before it: the Sentinels
    /// were set up again, and their epochs restarted.
    restarted: u64,
}

impl Followed {
    /// Whether to follow a reply to a round that began after `asked_after` decisions.
    ///
    /// The higher epoch wins. A lower epoch comes from Sentinels that were cut off, or from
    /// Sentinels that were set up again. It is accepted only in the second case: from a majority
    /// that was asked after the present decision.
    fn accepts(&self, heard: &MasterReply, asked_after: u64) -> bool {
        if self.decisions == asked_after {
            return heard.answer.epoch >= self.epoch || heard.majority;
        }
        let is_newer = heard.answer.epoch > self.epoch
            || heard.answer.epoch == self.epoch && self.server.is_none();
        is_newer && self.restarted <= asked_after
    }

    /// Follows an accepted decision. Returns the server of the decision before.
    fn follow(&mut self, epoch: u64, server: Option<Arc<Server>>) -> Option<Arc<Server>> {
        self.decisions += 1;
        if epoch < self.epoch {
            self.restarted = self.decisions;
        }
        self.epoch = epoch;
        std::mem::replace(&mut self.server, server)
    }

    /// The server to use if a reply was not accepted.
    fn instead(&self) -> Result<Arc<Server>, Error> {
        self.server.clone().ok_or_else(|| {
            let message = "the sentinels that answered know older decisions only: they may be cut off from the others";
            Error::new(ErrorKind::Unavailable, Applied::No, message)
        })
    }
}

impl Master {
    pub(crate) fn new(sentinels: Sentinels, accept_unfit: bool, opened: &Arc<AtomicU64>) -> Self {
        Self {
            sentinels,
            followed: Mutex::default(),
            accept_unfit,
            opened: Arc::clone(opened),
        }
    }

    /// Asks the Sentinels once a second, and whenever one reports a new master.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            let _ = tokio::time::timeout(ASK_INTERVAL, self.sentinels.hint()).await;
            if let Err(error) = self.ask().await {
                events::master_unknown(&error);
            }
        }
    }

    /// Asks the Sentinels for the master, and fails the calls in flight at a former one. Rejects a
    /// candidate that does not report the role master or fails the fitness check.
    pub(crate) async fn ask(&self) -> Result<Arc<Server>, Error> {
        let asked_after = self.followed().decisions;
        let heard = match self.sentinels.master().await {
            Ok(heard) => heard,
            // While no Sentinel replies, the client uses the last master that they named.
            Err(error) => return self.known().ok_or(error),
        };
        let server = self.sentinels.server();
        let target = server.at(heard.answer.host.clone(), heard.answer.port);
        {
            let mut followed = self.followed();
            if !followed.accepts(&heard, asked_after) {
                return followed.instead();
            }
            let known = followed.server.clone();
            if let Some(known) =
                known.filter(|known| known.target.info().addr() == target.info().addr())
            {
                if followed.epoch != heard.answer.epoch {
                    followed.follow(heard.answer.epoch, Some(Arc::clone(&known)));
                }
                return Ok(known);
            }
        }
        let new = Arc::new(Server::named(target, &self.opened));
        let mut connection = new.dedicated().await?;
        let fit = if self.accept_unfit {
            Ok(())
        } else {
            new.check_fit(&mut connection).await
        };
        let unfit = match fit {
            Err(error) if error.kind() != ErrorKind::Unsupported => return Err(error),
            fit => fit.err(),
        };
        let mut followed = self.followed();
        // Another round may have ended meanwhile, so the reply is compared with the present
        // decision.
        if !followed.accepts(&heard, asked_after) {
            return followed.instead();
        }
        // The next call checks an unfit server again. The former master is no longer used in either
        // case.
        let old = followed.follow(
            heard.answer.epoch,
            unfit.is_none().then(|| Arc::clone(&new)),
        );
        if let Some(old) = old {
            events::master_changed(&old.address, &new.address);
            old.supersede();
        }
        unfit.map_or(Ok(new), Err)
    }

    /// The master of the present decision.
    pub(crate) fn known(&self) -> Option<Arc<Server>> {
        self.followed().server.clone()
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::sentinel::Answer;

    fn heard(epoch: u64, majority: bool) -> MasterReply {
        MasterReply {
            answer: Answer {
                epoch,
                host: "127.0.0.1".into(),
                port: 7_000,
            },
            majority,
        }
    }

    /// The state after this many decisions, the last of which had this epoch.
    fn followed(decisions: u64, epoch: u64) -> Followed {
        let url = "redis://127.0.0.1:1/";
        let info = redis::IntoConnectionInfo::into_connection_info(url).expect("a URL");
        let server = Server::named(info.into(), &Arc::default());
        Followed {
            server: Some(Arc::new(server)),
            epoch,
            decisions,
            restarted: 0,
        }
    }

    #[test]
    fn an_older_epoch_needs_a_majority() {
        let followed = followed(3, 7);
        assert!(
            followed.accepts(&heard(7, false), 3),
            "nothing newer is known"
        );
        assert!(followed.accepts(&heard(8, false), 3));
        assert!(
            !followed.accepts(&heard(6, false), 3),
            "they were cut off together with the old master"
        );
        assert!(
            followed.accepts(&heard(0, true), 3),
            "they were set up again"
        );
    }

    #[test]
    fn a_newer_decision_made_meanwhile_is_not_replaced() {
        let mut followed = followed(3, 7);
        assert!(followed.accepts(&heard(8, false), 2));
        for majority in [false, true] {
            assert!(!followed.accepts(&heard(7, majority), 2));
            assert!(!followed.accepts(&heard(6, majority), 2));
        }
        followed.server = None;
        assert!(
            followed.accepts(&heard(7, false), 2),
            "the server that it named was unfit"
        );
    }

    #[test]
    fn an_epoch_from_before_a_new_set_of_sentinels_is_stale() {
        let mut followed = followed(3, 7);
        assert!(followed.accepts(&heard(1, true), 3));
        followed.follow(1, None);
        assert!(
            !followed.accepts(&heard(8, true), 3),
            "asked before they were set up again"
        );
        assert!(followed.accepts(&heard(2, false), 4));
    }
}
