//! `dueq import redisson`: copies the elements of a Redisson RDelayedQueue.
//!
//! Redisson stores each delayed element twice, framed (see [`frame`](super::frame)): in a ZSET with
//! its due time, from which Redisson delivers, and in a list in the order of the offers. It moves
//! due elements to the destination queue, a list of elements without frames.

use anyhow::{Result, bail};
use clap::Args;
use dueq::Queue;

use super::codec::RedissonCodec;
use super::store::Store;
use crate::output::Usage;
use crate::{Common, output};

#[derive(Args)]
#[command(after_help = "\
Copies the waiting elements with their due times, and the due elements that no program has taken
yet. Stop the programs that use the RDelayedQueue first, import, then start workers. The import
never changes Redisson's keys: delete them when you are sure.

An import that was interrupted or repeated continues where it ended: an element has the same id each
time, and the set dueq-import:redisson:{INTO}:NAME remembers the imported ids, so that handled
elements do not come back. Delete the set after the migration.

Examples:
  dueq import redisson orders --dry-run
  dueq import redisson orders
  dueq import redisson orders --into rated-orders --codec json --from redis://old.example.com/")]
pub(crate) struct Redisson {
    /// The name of the RDelayedQueue's destination queue
    #[arg(value_name = "QUEUE")]
    name: String,
    /// The dueq queue to push to [default: the same name]
    #[arg(long, value_name = "QUEUE")]
    into: Option<String>,
    /// The server of Redisson's keys, if it is another one
    #[arg(
        long,
        value_name = "URL",
        env = "DUEQ_IMPORT_FROM",
        hide_env_values = true
    )]
    from: Option<String>,
    /// How to convert the elements
    #[arg(long, value_enum, default_value_t = RedissonCodec::Raw)]
    pub(super) codec: RedissonCodec,
    /// Skip the due elements in the destination list; by default they are imported, due now
    #[arg(long)]
    pub(super) skip_due: bool,
    /// Only read and count the elements
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Import while Redisson clients are subscribed, which continue to deliver the same elements
    #[arg(long)]
    live: bool,
    /// Forget the earlier imports, and import handled elements again
    #[arg(long)]
    again: bool,
}

impl Redisson {
    pub(crate) async fn run(self, common: &Common) -> Result<()> {
        let into = self.into.clone().unwrap_or_else(|| self.name.clone());
        let queue = common
            .queue(&into)
            .await
            .map_err(|error| match &self.into {
                None if self.name.contains(['/', '{', '}']) => {
                    Usage(format!("{error}; choose a name by --into")).into()
                }
                _ => error,
            })?;
        let from = Store::open(self.from.as_deref().unwrap_or(common.url())).await?;
        let journal = Journal {
            store: Store::open(common.url()).await?,
            key: format!("dueq-import:redisson:{{{into}}}:{}", self.name),
            is_ignored: false,
        };
        let mut run = Run {
            keys: Keys::of(&self.name),
            options: self,
            queue,
            from,
            journal,
            tally: Tally::default(),
        };
        run.check().await?;
        let done = run.all(common.json).await;
        run.report(common.json, done.is_ok())?;
        if let Err(error) = done {
            bail!("{error:#}; run the same command again to continue");
        }
        match run.tally.unreadable {
            0 => Ok(()),
            count => {
                bail!("{count} elements could not be imported; they are still in Redisson's keys")
            }
        }
    }
}

/// The keys of an RDelayedQueue.
pub(super) struct Keys {
    pub(super) timeouts: String,
    pub(super) list: String,
    pub(super) destination: String,
    channel: String,
}

impl Keys {
    fn of(name: &str) -> Self {
        // As in Redisson, a name that contains a hash tag gets no second one.
        let tagged = if name.contains('{') {
            name.to_owned()
        } else {
            format!("{{{name}}}")
        };
        Self {
            timeouts: format!("redisson_delay_queue_timeout:{tagged}"),
            list: format!("redisson_delay_queue:{tagged}"),
            destination: name.to_owned(),
            channel: format!("redisson_delay_queue_channel:{tagged}"),
        }
    }
}

/// A set of Redis beside the queue, with the ids of all imported elements.
///
/// The queue itself forgets an id some seconds after its message was handled. The import adds an id
/// to the set after its push. If the program dies between the two, and the message is handled
/// before the next run, then that run imports the element twice; the reverse order could lose it.
pub(super) struct Journal {
    pub(super) store: Store,
    pub(super) key: String,
    pub(super) is_ignored: bool,
}

#[derive(Default)]
pub(super) struct Tally {
    pub(super) read: u64,
    pub(super) created: u64,
    pub(super) known: u64,
    pub(super) unreadable: u64,
}

/// An import.
pub(super) struct Run {
    pub(super) options: Redisson,
    pub(super) keys: Keys,
    pub(super) queue: Queue,
    pub(super) from: Store,
    pub(super) journal: Journal,
    pub(super) tally: Tally,
}

impl Run {
    /// Checks that the keys exist and that no Redisson client is active, and reads the journal.
    async fn check(&mut self) -> Result<()> {
        let Keys {
            timeouts,
            list,
            destination,
            channel,
        } = &self.keys;
        if self.from.existing(&[timeouts]).await? + self.from.existing(&[list]).await? == 0
            && (self.options.skip_due || self.from.existing(&[destination]).await? == 0)
        {
            bail!(
                "there is no RDelayedQueue of this name: neither {timeouts} nor {list} nor {destination} exists"
            );
        }
        // A user without the right to PUBSUB may still import.
        let clients = self.from.subscribers(channel).await.unwrap_or(0);
        if clients > 0 && !self.options.live && !self.options.dry_run {
            bail!(
                "{clients} Redisson clients serve this queue and would deliver its elements too: stop them, or add --live"
            );
        }
        let Journal {
            store,
            key,
            is_ignored,
        } = &mut self.journal;
        let remembered = store.remembered(key).await?;
        // Each id in the journal was pushed once. If the queue counts fewer pushes, it was deleted
        // since.
        if self.options.again || self.queue.stats().await?.pushed < remembered {
            *is_ignored = true;
            if !self.options.dry_run {
                store.forget(key).await?;
            }
        }
        Ok(())
    }

    fn report(&self, json: bool, is_complete: bool) -> Result<()> {
        let Tally {
            read,
            created,
            known,
            unreadable,
        } = self.tally;
        let (from, into, dry_run) = (&self.options.name, self.queue.name(), self.options.dry_run);
        if json {
            let line = serde_json::json!({
                "from": from, "into": into, "dry_run": dry_run, "complete": is_complete,
                "read": read, "created": created, "known": known, "unreadable": unreadable,
                "journal": self.journal.key,
            });
            output::json_line(&line)?;
        } else {
            let would = if dry_run { "would be " } else { "" };
            let (from, into) = (
                output::visible(from.as_bytes()),
                output::visible(into.as_bytes()),
            );
            output::line(&format!(
                "{read} elements of {from} read: {created} {would}imported into {into}, {known} known from before, {unreadable} unreadable"
            ))?;
        }
        Ok(())
    }
}
