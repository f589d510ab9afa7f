use super::*;

const MS: Duration = Duration::from_millis(1);

fn leading(start: Instant) -> NodeTimers {
    let mut timers = NodeTimers::new(start, 7);
    timers.set_leader(true, 1, start);
    timers
}

fn due(timers: &mut NodeTimers, now: Instant) -> Vec<Action> {
    std::iter::from_fn(|| timers.pop(now)).collect()
}

#[test]
fn the_lead_acts_on_the_dot_and_never_early() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.head_at(start + 10 * MS, start);
    assert_eq!(due(&mut timers, start + 9 * MS), []);
    assert_eq!(due(&mut timers, start + 10 * MS), [Action::Promote]);
}

#[test]
fn a_fraction_of_a_microsecond_is_waited_for() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.head_at(start + Duration::from_nanos(10_001), start);
    assert_eq!(due(&mut timers, start + Duration::from_micros(10)), []);
    assert_eq!(
        due(&mut timers, start + Duration::from_micros(11)),
        [Action::Promote]
    );
}

#[test]
fn who_stands_in_does_not_once_the_head_has_moved_on_and_the_lead_forgets_nothing() {
    let start = Instant::now();
    let mut stand_in = NodeTimers::new(start, 7);
    stand_in.set_leader(false, 2, start);
    stand_in.head_at(start + 10 * MS, start);
    stand_in.head_is(None, start + 11 * MS);
    assert_eq!(due(&mut stand_in, start + 900 * MS), []);
    stand_in.head_at(start + 910 * MS, start + 900 * MS);
    stand_in.head_is(Some(start + 1_500 * MS), start + 911 * MS);
    assert_eq!(due(&mut stand_in, start + 1_500 * MS), []);
    assert_eq!(due(&mut stand_in, start + 1_600 * MS), [Action::Promote]);

    let mut leader = leading(start);
    leader.head_at(start + 10 * MS, start);
    leader.head_is(Some(start + 20 * MS), start);
    assert_eq!(due(&mut leader, start + 10 * MS), [Action::Promote]);
}

#[test]
fn a_later_head_never_cancels_a_nearer_one_and_a_nearer_one_always_counts() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.head_at(start + 50 * MS, start);
    timers.head_at(start + 90 * MS, start);
    timers.head_at(start + 20 * MS, start);
    assert_eq!(due(&mut timers, start + 19 * MS), []);
    assert_eq!(
        due(&mut timers, start + 100 * MS),
        [Action::Promote],
        "one timer, consumed when it fires"
    );
}

#[test]
fn one_call_in_flight_at_a_time() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.head_at(start, start);
    assert_eq!(due(&mut timers, start), [Action::Promote]);
    timers.head_at(start, start + MS);
    timers.head_at(start + MS, start + MS);
    assert_eq!(due(&mut timers, start + MS), []);
    timers.completed(Action::Promote, start + 2 * MS, Duration::ZERO);
    assert_eq!(
        due(&mut timers, start + 2 * MS),
        [Action::Promote],
        "for what the first one cannot have known"
    );
    timers.head_at(start + MS, start + 3 * MS);
    timers.completed(Action::Promote, start + 3 * MS, Duration::ZERO);
    assert_eq!(
        due(&mut timers, start + 9 * MS),
        [],
        "what was due when it was sent is its business"
    );
}

#[test]
fn what_becomes_known_while_a_call_is_in_flight_is_not_forgotten() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.head_at(start, start);
    timers.beat_at(start, start);
    assert_eq!(due(&mut timers, start), [Action::Promote, Action::Beat]);
    timers.head_at(start + 9 * MS, start);
    timers.head_at(start + 5 * MS, start);
    timers.head_at(start + 7 * MS, start);
    timers.beat_at(start + 6 * MS, start);
    assert_eq!(due(&mut timers, start + 2 * MS), []);
    timers.completed(Action::Promote, start + 3 * MS, Duration::ZERO);
    assert_eq!(due(&mut timers, start + 4 * MS), []);
    assert_eq!(due(&mut timers, start + 5 * MS), [Action::Promote]);
    timers.completed(Action::Beat, start + 6 * MS, Duration::ZERO);
    assert_eq!(due(&mut timers, start + 6 * MS), [Action::Beat]);
}

#[test]
fn what_is_stuck_is_not_tried_again_before_its_pause_is_over() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.head_at(start, start);
    assert_eq!(due(&mut timers, start), [Action::Promote]);
    timers.completed(Action::Promote, start + MS, FALLBACK_INTERVAL);
    timers.head_at(start, start + MS);
    assert_eq!(due(&mut timers, start + 999 * MS), []);
    assert_eq!(due(&mut timers, start + 1_001 * MS), [Action::Promote]);
}

#[test]
fn what_is_stuck_does_not_delay_what_is_due_later() {
    let start = Instant::now();
    let mut timers = leading(start);
    timers.head_at(start, start);
    assert_eq!(due(&mut timers, start), [Action::Promote]);
    timers.completed(Action::Promote, start + MS, FALLBACK_INTERVAL);
    // Others have taken what was due; the next one is due within the floor.
    timers.head_at(start + 300 * MS, start + 2 * MS);
    assert_eq!(due(&mut timers, start + 299 * MS), []);
    assert_eq!(due(&mut timers, start + 300 * MS), [Action::Promote]);
}

#[test]
fn without_the_lead_a_node_waits_a_little_and_not_beyond_a_second() {
    let start = Instant::now();
    for (hash, nodes) in [(1, 1), (2, 3), (u64::MAX, 50), (3, 10_000)] {
        let mut timers = NodeTimers::new(start, hash);
        timers.set_leader(false, nodes, start);
        timers.head_at(start + 10 * MS, start);
        assert_eq!(due(&mut timers, start + 34 * MS), [], "{hash} {nodes}");
        assert_eq!(
            due(&mut timers, start + 1_010 * MS),
            [Action::Promote],
            "{hash} {nodes}"
        );
    }
}

#[test]
fn a_lead_that_was_not_renewed_is_over() {
    let start = Instant::now();
    let mut timers = leading(start);
    let later = start + LEADER_TTL;
    timers.head_at(later, later);
    assert_eq!(
        due(&mut timers, later),
        [],
        "it stands in like everybody else"
    );
}

#[test]
fn timers_of_claims_are_many_and_can_be_taken_back() {
    let start = Instant::now();
    let mut timers = leading(start);
    let first = timers.schedule(Action::Extend(1), start + 5 * MS);
    timers.schedule(Action::Extend(2), start + 5 * MS);
    timers.schedule(Action::Extend(3), start + 6 * MS);
    timers.unschedule(first);
    assert_eq!(
        due(&mut timers, start + 6 * MS),
        [Action::Extend(2), Action::Extend(3)]
    );
    assert_eq!(timers.next(), None);
}
