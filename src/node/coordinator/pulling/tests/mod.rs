use super::*;
use crate::node::consumers::consumer::Consumer;
use crate::node::consumers::pulls::PullRequest;
use crate::node::coordinator::event::Event;
use crate::node::coordinator::joining::tests::{coordinator, entry_of};
use crate::node::state::beat_mode::BeatMode;
use crate::protocol::replies::Header;
use crate::protocol::results::administer::Beat;

mod model;

fn header(paused: bool) -> Header {
    Header {
        sent: Instant::now(),
        now_us: 0,
        incarnation: "a".to_owned(),
        seq: 1,
        head_ms: None,
        lease_deadline_ms: None,
        paused,
        epoch: None,
    }
}

/// The reply to a beat of a paused queue.
fn paused() -> Reply {
    let beat = Beat {
        header: header(true),
        leader: false,
        nodes: 1,
        ready: 0,
        low_lists: None,
        moving: None,
        drained: false,
    };
    Reply::Beat {
        sent: Instant::now(),
        mode: BeatMode::Listening,
        result: Ok(beat),
    }
}

/// A beat that was sent before the pull is answered between the pull and its claim. If the claim
/// was forgotten, a later beat finds the pull.
#[tokio::test]
async fn a_pull_claims_even_from_a_paused_partition() {
    for is_forgotten in [false, true] {
        let mut node = coordinator();
        let servers = Arc::clone(&node.membership.servers);
        let pulls = Arc::<Pulls>::default();
        let entry = QueueEntry {
            consumer: Consumer::Pulls(Arc::clone(&pulls)),
            ..entry_of("pulled", &servers)
        };
        let now = Instant::now();
        node.attend_for_pulls(entry, now).expect("a new queue");
        let id = node.only_partition("pulled");
        let request = PullRequest {
            max: 1,
            lease_ms: 1_000,
            token: None,
        };
        let ticket = pulls.join(request).expect("room");
        ticket.expire();
        // The node's other queue, which has one handler, is taken out of the test.
        node.competing.clear();
        node.pulled("pulled", now);
        if is_forgotten {
            let partition = node.partitions.get_mut(&id).expect("attended");
            partition.claim.rest();
            node.competing.clear();
        }
        node.handle(Event::Reply(id, paused()));
        node.dispatch(now);
        assert!(node.partitions[&id].claim.is_in_flight());
        drop(ticket);
    }
}
