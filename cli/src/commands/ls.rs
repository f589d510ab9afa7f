//! `dueq ls`: pages of messages.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Args, ValueEnum};
use dueq::inspect::{MessageCursor, MessageEntry};
use dueq::{MessageState, Queue};
use jiff::tz::TimeZone;

use crate::commands::inspect::{lease_fields, table, time_name};
use crate::output::{Outcome, Usage};
use crate::picked::FilterFlags;
use crate::{Common, flags, output, time};

/// The most messages that one call of the protocol lists.
pub(super) const PAGE: usize = 1_000;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Listable {
    /// Messages that wait for their due time
    Scheduled,
    /// Due messages that wait for a handler
    Ready,
    /// Messages that a handler has
    Leased,
    /// Messages that were given up
    Dead,
}

#[derive(Args)]
#[command(after_help = "\
Prints a line a message. Its time is the due time (scheduled, ready), the end of the lease (leased),
or the time of death (dead). A leased one also has its start and its node, which `dueq nodes` and
`dueq end-lease --node` know. If there are more messages, the last line has the cursor for the next
page; with --json this is an object with the cursor alone. Give the same --newest with it.

Examples:
  dueq ls orders
  dueq ls orders --from 2026-12-01T20:00:00Z
  dueq ls orders --state dead --newest --limit 10
  dueq ls orders --state dead --error-text timeout --min-failures 2
  dueq ls orders --state leased --longest --limit 10
  dueq ls orders --state dead --limit 1000 --json | jq -r 'select(.id) | .error' | sort | uniq -c")]
pub(crate) struct Ls {
    /// The queue
    queue: String,
    /// The state of the messages
    #[arg(long, value_enum, default_value_t = Listable::Scheduled)]
    state: Listable,
    /// The latest time first
    #[arg(long)]
    newest: bool,
    /// Of leased messages: those first that run longest
    #[arg(long, conflicts_with_all = ["newest", "from", "cursor"])]
    longest: bool,
    /// Begin at this moment: now, 2026-12-01T20:00:00+08:00, Unix milliseconds; with --newest list
    /// earlier messages, else later ones
    #[arg(long, value_name = "MOMENT", conflicts_with = "cursor")]
    from: Option<String>,
    /// The time zone of a moment without one: Asia/Shanghai
    #[arg(long, value_name = "ZONE", value_parser = time::zone, requires = "from")]
    tz: Option<TimeZone>,
    /// Continue where another page ended
    #[arg(long)]
    cursor: Option<String>,
    /// The number of messages
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    filter: FilterFlags,
}

impl Ls {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let state = match self.state {
            Listable::Scheduled => MessageState::Scheduled,
            Listable::Ready => MessageState::Ready,
            Listable::Leased => MessageState::Leased,
            Listable::Dead => MessageState::Dead,
        };
        let mut cursor = match &self.cursor {
            Some(text) => Some(decode(text)?),
            None => None,
        };
        if let Some(text) = &self.from {
            cursor = Some(MessageCursor::at_ms(flags::moment_ms(
                text,
                self.tz.as_ref(),
            )?));
        }
        let (queue, mut left) = (
            common.existing_queue_to_read(&self.queue).await?,
            self.limit,
        );
        let filter = self.filter.read();
        let has = |one: &MessageEntry| filter.has(one.failures, one.crashes, &one.error);
        if self.longest {
            return longest(common, &queue, state, left, has).await;
        }
        while left > 0 {
            let limit = usize::try_from(left).map_or(PAGE, |left| left.min(PAGE));
            let mut page = match self.newest {
                true => queue.list_newest(state, cursor.as_ref(), limit).await?,
                false => queue.list(state, cursor.as_ref(), limit).await?,
            };
            page.messages.retain(has);
            write_page(common.json, state, &page.messages)?;
            left = left.saturating_sub(page.messages.len() as u64);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(Outcome::Done);
            }
        }
        if let Some(cursor) = cursor.map(|cursor| URL_SAFE_NO_PAD.encode(cursor.as_bytes())) {
            if common.json {
                output::json_line(&serde_json::json!({ "cursor": cursor }))?;
            } else {
                output::line(&format!("more: --cursor {cursor}"))?;
            }
        }
        Ok(Outcome::Done)
    }
}

fn decode(text: &str) -> Result<MessageCursor, Usage> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| {
        let digits = bytes
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        // Cursors of a queue with several partitions contain a slash.
        digits > 0 && matches!(bytes.get(digits), Some(b':' | b'/'))
    });
    let reason = || {
        Usage(format!(
            "--cursor {text:?} is no cursor: paste the cursor at the end of another page"
        ))
    };
    bytes.map(MessageCursor::from_bytes).ok_or_else(reason)
}

/// The most leased messages that are sorted by their start.
const MOST_SORTED: usize = 10_000;

/// Lists the leased messages that run longest. The server has no order by the start, so it reads all
/// of them.
async fn longest(
    common: &Common,
    queue: &Queue,
    state: MessageState,
    limit: u64,
    has: impl Fn(&MessageEntry) -> bool,
) -> anyhow::Result<Outcome> {
    if state != MessageState::Leased {
        return Err(Usage("--longest is for --state leased".to_owned()).into());
    }
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = queue.list(state, cursor.as_ref(), PAGE).await?;
        all.extend(page.messages);
        cursor = page.next;
        if cursor.is_none() || all.len() >= MOST_SORTED {
            break;
        }
    }
    all.retain(has);
    all.sort_by_key(|message| message.lease.as_ref().and_then(|lease| lease.since_ms));
    all.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    write_page(common.json, state, &all)?;
    if cursor.is_some() {
        output::note(&format!(
            "more than {MOST_SORTED} messages are leased: only these were compared"
        ));
    }
    Ok(Outcome::Done)
}

fn write_page(json: bool, state: MessageState, messages: &[MessageEntry]) -> io::Result<()> {
    if messages.is_empty() {
        return Ok(());
    }
    if json {
        let mut lines = Vec::with_capacity(messages.len());
        for message in messages {
            let mut object = output::id_fields(&message.id);
            object.insert("state".to_owned(), state.as_str().into());
            object.insert(format!("{}_ms", time_name(state)), message.time_ms.into());
            object.insert("failures".to_owned(), message.failures.into());
            object.insert("crashes".to_owned(), message.crashes.into());
            lease_fields(&mut object, message.lease.clone());
            object.insert("error".to_owned(), message.error.clone().into());
            lines.push(output::json(&object.into()));
        }
        output::line(&lines.join("\n"))
    } else {
        let mut table = table();
        let header = [time_name(state), "id", "failures", "crashes", "error"];
        let of_lease = (state == MessageState::Leased).then_some(["since", "node"]);
        table.set_header(header.into_iter().chain(of_lease.into_iter().flatten()));
        for message in messages {
            let mut row = vec![
                output::moment(message.time_ms),
                output::shown_id(&message.id),
                message.failures.to_string(),
                message.crashes.to_string(),
                output::visible(message.error.as_bytes()),
            ];
            row.extend(message.lease.iter().flat_map(|lease| {
                let since = lease.since_ms.map_or("unknown".to_owned(), output::moment);
                [since, lease.node.clone().unwrap_or("unknown".to_owned())]
            }));
            table.add_row(row);
        }
        output::line(&table.trim_fmt())
    }
}
