//! Examines the limits that claims obey: the rate, `max_leased` and expiries.

use crate::doctor::checkup::Checkup;
use crate::doctor::shell::{dueq, redis_cli, shell_word};
use crate::error::Error;
use crate::model::rate::Rate;
use crate::model::stats::QueueStats;
use crate::partition::Partition;

impl Checkup {
    /// Checks that the stored rate is valid, and that all live nodes obey the limits of the
    /// partition.
    pub(super) async fn limits(&mut self, partition: &Partition) -> Result<(), Error> {
        let (queue, keys, control) = (
            partition.queue_name(),
            partition.keys(),
            partition.control(),
        );
        let fields = control
            .fields(keys.meta(), ["rate", "max_leased", "expiring"])
            .await;
        let fields = self.allowed("the limits (HMGET)", fields)?;
        let Some([rate, max_leased, expiring]) = fields else {
            return Ok(());
        };
        if let Some(text) = rate.as_deref().filter(|text| Rate::parse(text).is_none()) {
            let problem = format!("rate in meta is {text:?}, which is no STARTS/WINDOW_MS/BURST");
            let consequence = "claims ignore it: nothing limits how many messages start";
            let key = shell_word(keys.meta().as_bytes());
            let remedy = redis_cli(&format!("HDEL {key} rate"));
            self.wrong(
                "rate",
                "rate",
                problem,
                consequence,
                format!("{remedy}; then set the rate again"),
            );
        }
        let limits: Vec<_> = [
            rate.map(|_| "a rate"),
            max_leased.map(|_| "max_leased"),
            expiring.map(|_| "messages that expire"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if limits.is_empty() {
            return Ok(());
        }
        let older = partition.older_nodes().await;
        let Some(older) = self.allowed("the nodes (ZRANGE)", older)? else {
            return Ok(());
        };
        if let Some(first) = older.first() {
            let problem = format!(
                "the queue has {}, and {} of its live nodes may be of an older release that ignores this, such as {first:?}",
                limits.join(", "),
                older.len()
            );
            self.remark(
                "old_nodes",
                queue,
                problem,
                "what such a node claims exceeds the limits, or has expired; a client of yours that \
                 uses newer scripts is no such node: let its id end in #2",
                "update these workers".to_owned(),
            );
        }
        Ok(())
    }

    /// Adds a remark if messages wait because of a limit. Returns whether a limit explains the
    /// waiting.
    pub(super) fn wait_for_limits(&mut self, queue: &str, stats: &QueueStats, due: &str) -> bool {
        let name = queue.as_bytes();
        let waiting = stats.due + stats.ready;
        if waiting == 0 || stats.nodes == 0 {
            return false;
        }
        if stats.full {
            let problem = format!(
                "{} messages are leased, as many as max_leased of {} allows, and {due}",
                stats.leased, stats.max_leased
            );
            let consequence = "each message starts when another one is settled; raise max_leased if its \
                               receiver can take more";
            let remedy = dueq("ls --state leased", &[name]);
            self.remark("full", queue, problem, consequence, remedy);
            return true;
        }
        let Some(rate) = stats.rate else { return false };
        if u128::from(stats.closed_ms) > rate.window.as_millis() {
            return false;
        }
        let problem = format!("{due}, and the rate of the queue is {rate}");
        let consequence = "normal while more messages are due than the rate lets start; if `claimed` of \
                           the stats does not grow, see the logs of the workers";
        self.remark("rate", queue, problem, consequence, dueq("stats", &[name]));
        true
    }
}
