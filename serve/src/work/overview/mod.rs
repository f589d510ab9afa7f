//! What lists of queues show beside the counts: when messages are due, what happened lately, workers.
//!
//! That needs calls of Redis for each queue, and a page makes at most 8. So one task reads it for all
//! viewers, at a bounded rate, and a page shows what is known. This is the only part of the dashboard
//! that calls the library and not `/v1`: it knows no caller. A page asks it only about queues that
//! `/v1` has listed for its caller.

mod plan;
mod read;
mod state;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dueq::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use plan::View;
pub(crate) use read::ended;
pub(crate) use state::Known;

use crate::work::overview::plan::{MAX_RATE, Plan};
use crate::work::overview::state::{Shared, State};

/// Reads in the background what lists show of each queue.
pub(crate) struct Overview {
    shared: Arc<Shared>,
    client: Client,
    /// The task: it begins with the first look, and again after a panic or the end of its runtime.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Overview {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    plan: Plan::default(),
                    known: HashMap::new(),
                    clock: None,
                }),
                looked: tokio::sync::Notify::new(),
                answers: watch::Sender::new(0),
            }),
            client,
            task: Mutex::default(),
        }
    }

    /// What is known of these queues. Parts that are old are read again in the background. The answer
    /// waits at most `patience` for parts that were never read, if they are at most [`MAX_RATE`].
    pub(crate) async fn look(
        &self,
        view: View,
        names: &[&str],
        patience: Duration,
    ) -> HashMap<Arc<str>, Known> {
        let mut answers = self.shared.answers.subscribe();
        self.shared.look(view, names);
        self.shared.looked.notify_one();
        self.ensure();
        if self.shared.unanswered(view, names) <= MAX_RATE {
            let is_whole = answers.wait_for(|_| self.shared.unanswered(view, names) == 0);
            let _ = tokio::time::timeout(patience, is_whole).await;
        }
        self.shared.fresh(names)
    }

    /// Starts the task, if it does not run.
    fn ensure(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let run = read::run(Arc::clone(&self.shared), self.client.clone());
            *task = Some(tokio::spawn(run));
        }
    }
}

impl Drop for Overview {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far longer than anything takes that is awaited.
    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn what_is_looked_at_is_read_and_the_task_ends_with_its_owner() {
        let redis = dueq_testkit::Server::start(&[]).expect("a Redis");
        let client = Client::connect(&redis.url()).await.expect("a client");
        let queue = client.queue("orders").expect("a queue");
        let delay = Duration::from_secs(400);
        queue.push("x").delay(delay).await.expect("a push");
        let overview = Overview::new(client);
        let known = overview
            .look(View::Queues, &["orders", "absent"], LIMIT)
            .await;
        let orders = known.get("orders").expect("the queue is known");
        let (due, _) = orders.due.as_ref().expect("its dues");
        assert_eq!(due.0, [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(orders.lately.is_some() && orders.day.is_some());
        assert!(orders.nodes.is_none(), "nobody looked at workers");
        let shared = Arc::downgrade(&overview.shared);
        drop(overview);
        let ended = async {
            while shared.strong_count() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, ended).await.expect("it ends");
    }

    #[tokio::test]
    async fn nobody_waits_for_more_than_can_be_read_at_once() {
        let redis = dueq_testkit::Server::start(&[]).expect("a Redis");
        let client = Client::connect(&redis.url()).await.expect("a client");
        let overview = Overview::new(client);
        let names: Vec<_> = (0..=MAX_RATE).map(|number| format!("q{number}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        overview.look(View::Workers, &names, LIMIT).await;
        let unanswered = overview.shared.unanswered(View::Workers, &names);
        assert_eq!(unanswered, names.len(), "it did not wait");
        overview.look(View::Workers, &names[..5], LIMIT).await;
        let unanswered = overview.shared.unanswered(View::Workers, &names[..5]);
        assert_eq!(unanswered, 0, "it waited");
    }
}
