//! Pushes the lines of a body while it is still arriving, in bounded memory.

use std::collections::VecDeque;
use std::future::ready;

use axum::body::Body;
use dueq::{Applied, Message, Queue, Receipt};
use http_body_util::BodyExt;
use tokio::task::{JoinError, JoinHandle};

use crate::edge::body::{Reserved, unread as unread_body};
use crate::edge::problem::{Code, Problem};
use crate::routes::messages::key::{Key, push_many};
use crate::routes::messages::lines::{Line, Lines};
use crate::routes::messages::reader::{MAX_BYTES, Reader, unread};
use crate::routes::messages::tally::{Sent, Summary, Tally};
use crate::work::App;

/// The most batches in flight: while Redis stores one, the next is already sent.
const IN_FLIGHT: usize = 2;
/// A batch is sent when it has this number of lines, or of bytes.
const BATCH_LINES: usize = 4_096;
const BATCH_BYTES: usize = 2 << 20;

type Results = Vec<Result<Receipt, Problem>>;

/// A batch in flight. Its push goes on if the caller disconnects.
struct Flight {
    sent: Vec<Sent>,
    last_line: u64,
    results: JoinHandle<Results>,
}

/// The state of a request that pushes lines.
struct Stream<'a> {
    app: &'a App,
    queue: Queue,
    key: Option<Key>,
    reader: Reader,
    /// The lines of the next batch.
    sent: Vec<Sent>,
    messages: Vec<Message>,
    bytes: usize,
    /// The last line that was read.
    last_line: u64,
    reserved: Reserved,
    flights: VecDeque<Flight>,
    tally: Tally,
}

/// Pushes every line of the body. A wrong line is refused, and the others are still pushed. If
/// Redis fails or the body breaks off, messages that are already pushed stay.
pub(super) async fn push_lines(
    app: &App,
    queue: Queue,
    key: Option<Key>,
    body: Body,
    reader: Reader,
) -> Result<Summary, Problem> {
    let mut stream = Stream {
        app,
        queue,
        key,
        reader,
        sent: Vec::new(),
        messages: Vec::new(),
        bytes: 0,
        last_line: 0,
        reserved: app.edge.bodies.none(),
        flights: VecDeque::new(),
        tally: Tally::default(),
    };
    let cut = stream.run(body).await;
    stream.tally.done(stream.last_line);
    if let Some(problem) = cut {
        stream.tally.fail(problem);
    }
    stream.tally.finish()
}

impl Stream<'_> {
    /// Reads the whole body. Returns a problem if the body broke off.
    async fn run(&mut self, mut body: Body) -> Option<Problem> {
        let (mut lines, mut has_ended, mut cut) = (Lines::new(MAX_BYTES), false, None);
        loop {
            has_ended |= self.tally.has_failed();
            let is_full = self.messages.len() >= BATCH_LINES || self.bytes >= BATCH_BYTES;
            let may_send = !self.messages.is_empty()
                && self.flights.len() < IN_FLIGHT
                && !self.tally.has_failed();
            tokio::select! {
                biased;
                results = first(&mut self.flights), if !self.flights.is_empty() => {
                    self.land(results);
                }
                frame = body.frame(), if !has_ended && !is_full => match frame {
                    Some(Ok(frame)) => if let Ok(data) = frame.into_data() {
                        self.take(&mut lines, &data).await;
                    },
                    // A last line that is cut off is not pushed.
                    Some(Err(error)) => {
                        cut = Some(unread_body(&error).retryable());
                        has_ended = true;
                    }
                    None => {
                        let last = lines.last();
                        if last.text.is_none_or(|text| !text.is_empty()) {
                            self.line(last).await;
                        }
                        has_ended = true;
                    }
                },
                // No data is available now: send the lines of a slow writer without waiting for a
                // full batch.
                () = ready(()), if may_send => self.send(lines.waiting()),
                else => return cut,
            }
        }
    }

    /// Reads the lines in one part of the body.
    async fn take(&mut self, lines: &mut Lines, data: &[u8]) {
        while let Err(problem) = self.reserved.grow(data.len()) {
            // Wait until batches of this request free their memory.
            if self.flights.is_empty() {
                return self.tally.fail(problem);
            }
            let results = first(&mut self.flights).await;
            self.land(results);
        }
        let mut rest = data;
        while let Some(line) = lines.next(&mut rest) {
            self.line(line).await;
            if self.tally.has_failed() {
                return;
            }
        }
    }

    /// Parses a line and adds it to the next batch, or refuses it.
    async fn line(&mut self, line: Line<'_>) {
        let number = line.number;
        let read = match line.text {
            Some([]) => Ok(None),
            Some(text) => match self.reader.read(&self.app.client, text).await {
                Ok(Ok(message)) => Ok(Some((message, text.len()))),
                Ok(Err(error)) => Err(unread(text, &error)),
                // Redis's clock could not be read.
                Err(error) => return self.tally.fail(error.into()),
            },
            None => {
                let detail = format!("the line has more than {MAX_BYTES} bytes");
                Err(Problem::new(Code::TooLarge, detail))
            }
        };
        self.last_line = number;
        match read {
            Ok(None) => {}
            Ok(Some((message, bytes))) => {
                let (message, of_key) = match (&self.key, message.id_bytes()) {
                    (Some(key), None) => key.name(message, number),
                    _ => (message, None),
                };
                self.sent.push(Sent {
                    line: number,
                    on_conflict: message.conflict(),
                    of_key,
                });
                self.messages.push(message);
                self.bytes += bytes;
            }
            Err(problem) => {
                let _ = self.tally.refuse(number, &problem);
            }
        }
    }

    /// Sends the batch. The reservation of `waiting` bytes stays for the incomplete line.
    fn send(&mut self, waiting: usize) {
        self.bytes = 0;
        let messages = std::mem::take(&mut self.messages);
        let sent = std::mem::take(&mut self.sent);
        let of_key: Vec<_> = sent.iter().map(|sent| sent.of_key).collect();
        let (queue, memory) = (self.queue.clone(), self.reserved.split_but(waiting));
        let results = tokio::spawn(async move {
            let _memory = memory;
            push_many(&queue, messages, &of_key).await
        });
        self.flights.push_back(Flight {
            sent,
            last_line: self.last_line,
            results,
        });
    }

    /// Counts the results of the oldest batch in flight.
    fn land(&mut self, results: Result<Results, JoinError>) {
        let Some(flight) = self.flights.pop_front() else {
            return;
        };
        match results {
            Ok(results) => {
                for (sent, result) in flight.sent.into_iter().zip(results) {
                    let _ = self.tally.settle(sent, result);
                }
                self.tally.done(flight.last_line);
            }
            Err(error) => {
                let detail = format!("a push ended without a result: {error}");
                let problem = Problem::new(Code::Internal, detail);
                self.tally.fail(problem.applied(Applied::Unknown));
            }
        }
    }
}

/// Awaits the results of the oldest batch in flight. Cancel safe.
async fn first(flights: &mut VecDeque<Flight>) -> Result<Results, JoinError> {
    match flights.front_mut() {
        Some(flight) => (&mut flight.results).await,
        None => std::future::pending().await,
    }
}
