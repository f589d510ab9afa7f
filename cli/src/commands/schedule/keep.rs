//! `dueq schedule keep`: lists the next fires of the crons.

use std::time::Duration;

use clap::Args;
use dueq::Client;
use dueq::schedules::RefillOutcome;

use crate::output::Outcome;
use crate::signals::EndSignals;
use crate::{Common, existing, output};

/// How often the lists are refilled.
const EVERY: Duration = Duration::from_secs(60);

#[derive(Args)]
#[command(after_help = "\
Redis knows no time zones, so the fires of a cron are listed ahead. This command lists up to 512 for
each cron: 8 hours of a minutely one, 17 months of a daily one. The leader of the queue's workers in
Rust does the same: run this command if all your workers are in other languages. A schedule with
every needs no list.

With --once, run it from cron(8) every hour. Without, it runs until Ctrl-C or SIGTERM, and repeats a
round that failed a minute later. It needs the rights of a consumer.

Prints how many lists got fires, and how many fires they have now. A schedule whose list was empty
is named on standard error: it made no ticks until then. Exit code 1 if a list could not be refilled.

Examples:
  dueq schedule keep reports mails
  dueq schedule keep reports --once --json | jq .lists")]
pub(super) struct Keep {
    /// The queues
    #[arg(required = true, value_name = "QUEUE")]
    queues: Vec<String>,
    /// Refill the lists once, and end
    #[arg(long)]
    once: bool,
}

impl Keep {
    pub(super) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        for name in &self.queues {
            dueq::admin::queue_keys(name)?;
        }
        if self.once {
            return self.round(&common.client().await?, common).await;
        }
        let mut signals = EndSignals::listen()?;
        let work = async {
            let mut client = None;
            loop {
                if let Err(error) = self.try_round(&mut client, common).await {
                    if output::is_broken_pipe(&error) {
                        return error;
                    }
                    common.complain(&error);
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        tokio::select! {
            error = work => Err(error),
            () = signals.recv() => Ok(Outcome::Done),
        }
    }

    async fn try_round(&self, client: &mut Option<Client>, common: &Common) -> anyhow::Result<()> {
        let client = match client {
            Some(client) => client,
            None => client.insert(common.client().await?),
        };
        self.round(client, common).await.map(|_| ())
    }

    /// Refills the lists of each queue. If one queue fails, goes on with the others, unless the
    /// server is unreachable.
    async fn round(&self, client: &Client, common: &Common) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::Done;
        for name in &self.queues {
            let queue = common.queue_of(client, name)?;
            if let Some(reason) = existing::absence(client, &queue).await? {
                common.complain(&anyhow::Error::msg(reason));
                outcome = Outcome::Refused;
                continue;
            }
            match queue.refill_schedules().await {
                Ok(refilled) => outcome = outcome.and(self.print(name, &refilled, common)?),
                Err(error) if error.is_retryable() => return Err(error.into()),
                Err(error) => {
                    common.complain(&error.into());
                    outcome = Outcome::Refused;
                }
            }
        }
        Ok(outcome)
    }

    fn print(
        &self,
        name: &str,
        refilled: &RefillOutcome,
        common: &Common,
    ) -> anyhow::Result<Outcome> {
        for dry in &refilled.dry {
            common.remark(&format!(
                "queue {name}: the list of schedule {dry:?} was empty, so it made no ticks"
            ));
        }
        for failed in &refilled.failed {
            common.complain(&anyhow::anyhow!(
                "queue {name}: cannot list the fires of schedule {failed}"
            ));
        }
        // While the program keeps running, a round that refilled nothing prints nothing.
        if self.once || refilled.lists > 0 {
            if common.json {
                output::json_line(&serde_json::json!({
                    "queue": name,
                    "outcome": "refilled",
                    "lists": refilled.lists,
                    "fires": refilled.fires,
                    "dry": refilled.dry,
                    "overtaken": refilled.overtaken,
                    "failed": refilled.failed,
                }))?;
            } else {
                let (lists, fires) = (refilled.lists, refilled.fires);
                let name = output::visible(name.as_bytes());
                output::line(&format!("refilled {lists} lists ({fires} fires) {name}"))?;
            }
        }
        Ok(Outcome::done_if(refilled.failed.is_empty()))
    }
}
