//! Finds leases whose workers are no longer alive.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::doctor::checkup::Checkup;
use crate::doctor::shell::dueq;
use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::lease_token::end_of_node;
use crate::model::outcomes::MessageState;
use crate::model::stored::MessageEntry;
use crate::queue::Queue;

/// Leases that end within this time are no finding: their messages return without help.
const SOON_MS: u64 = 60_000;
/// How many leased messages are examined: those whose leases end last.
const LOOKED_AT: usize = 1_000;

/// The most nodes that a partition lists.
const MOST_NODES: usize = 1_000;

/// The leases of one worker that is no longer alive.
struct Gone {
    node: String,
    count: usize,
    until_ms: u64,
}

impl<C: Codec> Queue<C> {
    /// Adds a finding for each worker that holds leases and does not beat.
    pub(super) async fn leases_of_the_gone(&self, checkup: &mut Checkup) -> Result<(), Error> {
        let read = self.gone().await;
        let read = checkup.allowed("whose leases last (peek, nodes)", read)?;
        let (now_ms, all) = read.unwrap_or_default();
        for gone in all {
            checkup.gone(self.name(), &gone, now_ms);
        }
        Ok(())
    }

    /// The workers that hold leases and are no longer alive, and the server's time.
    async fn gone(&self) -> Result<(u64, Vec<Gone>), Error> {
        // Earlier calls of the doctor have set the estimate of the server's clock.
        let clock = self.router().home().route().clock();
        let now_us = clock.server_us(Instant::now()).unwrap_or_default();
        let now_ms = u64::try_from(now_us / 1_000).unwrap_or_default();
        let mut held = Vec::new();
        let mut cursor = None;
        while held.len() < LOOKED_AT {
            let left = LOOKED_AT - held.len();
            let page = self
                .list_newest(MessageState::Leased, cursor.as_ref(), left)
                .await?;
            let late = |listed: &MessageEntry| listed.time_ms > now_ms + SOON_MS;
            let is_last = page.next.is_none() || !page.messages.last().is_some_and(late);
            held.extend(page.messages.into_iter().filter(late));
            cursor = page.next;
            if is_last {
                break;
            }
        }
        if held.iter().all(|listed| node_of(listed).is_none()) {
            return Ok((now_ms, Vec::new()));
        }
        // The nodes are read after the leases, so a node that claimed before the first read has
        // sent its first beat by now.
        let nodes = self.nodes().await?;
        if nodes.len() >= MOST_NODES {
            return Ok((now_ms, Vec::new())); // the list may be incomplete
        }
        let live = nodes.iter().filter_map(|node| end_of_node(&node.id));
        Ok((now_ms, gone(&held, &live.collect())))
    }
}

fn node_of(listed: &MessageEntry) -> Option<&str> {
    listed.lease.as_ref()?.node.as_deref()
}

/// The workers that hold some of these messages and are not among the live nodes.
fn gone(held: &[MessageEntry], live: &BTreeSet<[u8; 7]>) -> Vec<Gone> {
    let mut all: Vec<Gone> = Vec::new();
    for listed in held {
        let lives = |node: &&str| end_of_node(node).is_some_and(|end| live.contains(&end));
        let Some(node) = node_of(listed).filter(|node| !lives(node)) else {
            continue;
        };
        match all.iter_mut().find(|gone| gone.node == node) {
            Some(gone) => gone.count += 1,
            // The messages are sorted with the latest end of a lease first.
            None => all.push(Gone {
                node: node.to_owned(),
                count: 1,
                until_ms: listed.time_ms,
            }),
        }
    }
    all
}

impl Checkup {
    fn gone(&mut self, queue: &str, gone: &Gone, now_ms: u64) {
        let Gone {
            node,
            count,
            until_ms,
        } = gone;
        let left_s = until_ms.saturating_sub(now_ms) / 1_000;
        let problem = format!(
            "{count} messages are leased by the worker {node} for up to {left_s} s more, and it has sent no beat for 3 s"
        );
        self.wrong(
            "orphaned_leases",
            queue,
            problem,
            "no other worker gets them before that: it was killed, or cannot reach Redis",
            format!(
                "{}, if it is gone",
                dueq(&format!("end-lease --node {node}"), &[queue.as_bytes()])
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stored::LeaseInfo;

    #[test]
    fn leases_of_live_or_unknown_workers_are_no_finding() {
        let held: Vec<_> = [Some("aaaaaa1"), Some("bbbbbb2"), None, Some("bbbbbb2")]
            .into_iter()
            .map(|node| MessageEntry {
                id: b"1".to_vec(),
                time_ms: 7,
                failures: 0,
                crashes: 0,
                error: String::new(),
                lease: Some(LeaseInfo {
                    name: "0123456789abcdef".to_owned(),
                    node: node.map(str::to_owned),
                    since_ms: None,
                    is_to_bury: false,
                }),
            })
            .collect();
        let found = |live: &[[u8; 7]]| {
            let gone = gone(&held, &live.iter().copied().collect());
            let name = |gone: Gone| (gone.node, gone.count);
            gone.into_iter().map(name).collect::<Vec<_>>()
        };
        let [one, two] = [("aaaaaa1".to_owned(), 1), ("bbbbbb2".to_owned(), 2)];
        assert_eq!(found(&[]), [one, two.clone()]);
        assert_eq!(found(&[*b"aaaaaa1"]), [two]);
        assert_eq!(found(&[*b"aaaaaa1", *b"bbbbbb2"]), []);
    }
}
