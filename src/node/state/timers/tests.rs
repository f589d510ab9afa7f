use super::*;

const MS: Duration = Duration::from_millis(1);
const Q: PartitionId = PartitionId(1);

/// The wheel of a node, and the timers of one partition.
struct One {
    node: NodeTimers,
    own: PartitionTimers,
}

impl One {
    fn pop(&mut self, now: Instant) -> Option<Due> {
        self.node.pop(now, |id| (id == Q).then_some(&mut self.own))
    }

    fn next(&self) -> Option<Instant> {
        self.node.next()
    }

    fn promote_at(&mut self, at: Instant, now: Instant) {
        self.own.promote_at(at, &mut self.node, now);
    }

    fn head_is(&mut self, at: Option<Instant>, now: Instant) {
        self.own.head_is(at, &mut self.node, now);
    }

    fn beat_at(&mut self, at: Instant, now: Instant) {
        self.own.beat_at(at, &mut self.node, now);
    }

    fn completed(&mut self, action: Action, now: Instant, backoff: Duration) {
        self.own.completed(action, &mut self.node, now, backoff);
    }
}

fn timers(start: Instant, seed: u64) -> One {
    One {
        node: NodeTimers::new(start, seed),
        own: PartitionTimers::new(Q, None),
    }
}

fn leading(start: Instant) -> One {
    let mut timers = timers(start, 7);
    timers.own.set_leader(true, 1, start, LEADER_TTL);
    timers
}

fn due(timers: &mut One, now: Instant) -> Vec<Action> {
    std::iter::from_fn(|| timers.pop(now))
        .map(|due| match due {
            Due::Act(_, action) => action,
            Due::Watch(_) => panic!("no roster is watched"),
        })
        .collect()
}

#[test]
fn the_leader_promotes_at_the_due_time_and_not_earlier() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.promote_at(start + 10 * MS, start);
    assert_eq!(due(&mut timers, start + 9 * MS), []);
    assert_eq!(due(&mut timers, start + 10 * MS), [Action::Promote]);
}

#[test]
fn due_times_are_rounded_up_to_a_microsecond() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.promote_at(start + Duration::from_nanos(10_001), start);
    assert_eq!(due(&mut timers, start + Duration::from_micros(10)), []);
    assert_eq!(
        due(&mut timers, start + Duration::from_micros(11)),
        [Action::Promote]
    );
}

#[test]
fn a_new_head_clears_earlier_times_of_standbys_only() {
    let start = Instant::now();
    let mut standby = timers(start, 7);
    standby.own.set_leader(false, 2, start, LEADER_TTL);
    standby.promote_at(start + 10 * MS, start);
    standby.head_is(None, start + 11 * MS);
    assert_eq!(due(&mut standby, start + 900 * MS), []);
    standby.promote_at(start + 910 * MS, start + 900 * MS);
    standby.head_is(Some(start + 1_500 * MS), start + 911 * MS);
    assert_eq!(due(&mut standby, start + 1_500 * MS), []);
    assert_eq!(due(&mut standby, start + 1_600 * MS), [Action::Promote]);

    let mut leader = leading(start);
    leader.promote_at(start + 10 * MS, start);
    leader.head_is(Some(start + 20 * MS), start);
    assert_eq!(due(&mut leader, start + 10 * MS), [Action::Promote]);
}

#[test]
fn the_earliest_of_several_requested_times_counts() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.promote_at(start + 50 * MS, start);
    timers.promote_at(start + 90 * MS, start);
    timers.promote_at(start + 20 * MS, start);
    assert_eq!(due(&mut timers, start + 19 * MS), []);
    assert_eq!(
        due(&mut timers, start + 100 * MS),
        [Action::Promote],
        "one timer, which fires once"
    );
}

#[test]
fn at_most_one_call_of_a_kind_is_in_flight() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.promote_at(start, start);
    assert_eq!(due(&mut timers, start), [Action::Promote]);
    timers.promote_at(start, start + MS);
    timers.promote_at(start + MS, start + MS);
    assert_eq!(due(&mut timers, start + MS), []);
    timers.completed(Action::Promote, start + 2 * MS, Duration::ZERO);
    assert_eq!(
        due(&mut timers, start + 2 * MS),
        [Action::Promote],
        "for the message that became due after the first call"
    );
    timers.promote_at(start + MS, start + 3 * MS);
    timers.completed(Action::Promote, start + 3 * MS, Duration::ZERO);
    assert_eq!(
        due(&mut timers, start + 9 * MS),
        [],
        "the call covered everything due when it was sent"
    );
}

#[test]
fn times_requested_during_a_call_are_kept() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.promote_at(start, start);
    timers.beat_at(start, start);
    assert_eq!(due(&mut timers, start), [Action::Promote, Action::Beat]);
    timers.promote_at(start + 9 * MS, start);
    timers.promote_at(start + 5 * MS, start);
    timers.promote_at(start + 7 * MS, start);
    timers.beat_at(start + 6 * MS, start);
    assert_eq!(due(&mut timers, start + 2 * MS), []);
    timers.completed(Action::Promote, start + 3 * MS, Duration::ZERO);
    assert_eq!(due(&mut timers, start + 4 * MS), []);
    assert_eq!(due(&mut timers, start + 5 * MS), [Action::Promote]);
    timers.completed(Action::Beat, start + 6 * MS, Duration::ZERO);
    assert_eq!(due(&mut timers, start + 6 * MS), [Action::Beat]);
}

#[test]
fn overdue_promote_respects_backoff() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.promote_at(start, start);
    assert_eq!(due(&mut timers, start), [Action::Promote]);
    timers.completed(Action::Promote, start + MS, FALLBACK_INTERVAL);
    timers.promote_at(start, start + MS);
    assert_eq!(due(&mut timers, start + 999 * MS), []);
    assert_eq!(due(&mut timers, start + 1_001 * MS), [Action::Promote]);
}

#[test]
fn backoff_does_not_delay_future_messages() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.promote_at(start, start);
    assert_eq!(due(&mut timers, start), [Action::Promote]);
    timers.completed(Action::Promote, start + MS, FALLBACK_INTERVAL);
    // Other nodes have claimed the overdue message. The next one is due before the back-off ends.
    timers.promote_at(start + 300 * MS, start + 2 * MS);
    assert_eq!(due(&mut timers, start + 299 * MS), []);
    assert_eq!(due(&mut timers, start + 300 * MS), [Action::Promote]);
}

#[test]
fn a_standby_promotes_between_25_ms_and_1_s_late() {
    let start = Instant::now();
    for (hash, nodes) in [(1, 1), (2, 3), (u64::MAX, 50), (3, 10_000)] {
        let mut standby = timers(start, hash);
        standby.own.set_leader(false, nodes, start, LEADER_TTL);
        standby.promote_at(start + 10 * MS, start);
        assert_eq!(due(&mut standby, start + 34 * MS), [], "{hash} {nodes}");
        assert_eq!(
            due(&mut standby, start + 1_010 * MS),
            [Action::Promote],
            "{hash} {nodes}"
        );
    }
}

#[test]
fn a_leader_without_a_beat_becomes_a_standby() {
    let start = Instant::now();
    let mut timers = leading(start);
    let later = start + LEADER_TTL;
    timers.promote_at(later, later);
    assert_eq!(due(&mut timers, later), [], "it delays like any standby");
}

#[test]
fn lease_checks_are_independent_and_can_be_cancelled() {
    let start = Instant::now();
    let mut timers = leading(start);
    let check = |claim| Due::Act(Q, Action::CheckLeases(claim));
    let first = timers.node.schedule(check(1), start + 5 * MS);
    timers.node.schedule(check(2), start + 5 * MS);
    timers.node.schedule(check(3), start + 6 * MS);
    timers.node.cancel(first);
    assert_eq!(
        due(&mut timers, start + 6 * MS),
        [Action::CheckLeases(2), Action::CheckLeases(3)]
    );
    assert_eq!(timers.next(), None);
}

#[test]
fn queues_share_only_the_wheel() {
    const OTHER: PartitionId = PartitionId(2);
    let start = Instant::now();
    let mut timers = leading(start);
    let mut other = PartitionTimers::new(OTHER, None);
    other.set_leader(true, 1, start, LEADER_TTL);
    timers.promote_at(start + 9 * MS, start);
    other.promote_at(start + 5 * MS, &mut timers.node, start);
    other.claim_at(start + 7 * MS, &mut timers.node, start);
    let first = Some(Due::Act(OTHER, Action::Promote));
    assert_eq!(timers.pop(start + 9 * MS), first);
    other.fired(Action::Promote, start + 9 * MS);
    other.promote_at(start + 6 * MS, &mut timers.node, start + 6 * MS);
    other.close(&mut timers.node);
    assert!(!other.is_in_flight(Action::Promote));
    let second = Some(Due::Act(Q, Action::Promote));
    assert_eq!(timers.pop(start + 9 * MS), second);
    assert_eq!(
        timers.pop(start + 9 * MS),
        None,
        "closed with its partition"
    );
    let late = start + 9 * MS;
    other.completed(Action::Promote, &mut timers.node, late, Duration::ZERO);
    other.promote_at(start, &mut timers.node, late);
    assert_eq!(timers.next(), None, "a late reply arms no timer");
}

#[test]
fn standbys_of_successive_ranks_act_25_ms_apart() {
    let start = Instant::now();
    for (rank, delay) in [(0, 25), (1, 25), (2, 50), (7, 175), (90, 1_000)] {
        let mut timers = timers(start, 7);
        timers.own.rank = Some(rank);
        timers.own.set_leader(false, 50, start, LEADER_TTL);
        timers.promote_at(start + 10 * MS, start);
        let at = start + (10 + delay) * MS;
        assert_eq!(due(&mut timers, at - MS), [], "rank {rank}");
        assert_eq!(due(&mut timers, at), [Action::Promote], "rank {rank}");
    }
}

#[test]
fn a_leader_of_any_rank_promotes_at_the_due_time() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.own.rank = Some(2);
    timers.promote_at(start + 10 * MS, start);
    assert_eq!(due(&mut timers, start + 10 * MS), [Action::Promote]);
}
