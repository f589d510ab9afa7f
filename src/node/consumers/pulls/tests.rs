use super::*;

const HOME: PartitionId = PartitionId(1);
const OTHER: PartitionId = PartitionId(2);

fn request(max: usize, lease_ms: u64) -> PullRequest {
    PullRequest {
        max,
        lease_ms,
        token: None,
    }
}

fn join(pulls: &Arc<Pulls>, max: usize) -> Ticket {
    let ticket = pulls.join(request(max, 1_000)).expect("room");
    pulls.seen(&BTreeSet::from([HOME, OTHER]));
    ticket
}

fn deliveries(numbers: std::ops::Range<u8>) -> Vec<Delivery> {
    numbers.map(Delivery::unconnected).collect()
}

/// The last byte of each id that a pull got, if it has its answer. An error counts as no ids.
fn answered(ticket: &mut Ticket) -> Option<Vec<u8>> {
    let answer = ticket.answer.try_recv().ok()?;
    let deliveries = answer.map(Grant::take).unwrap_or_default();
    let number = |delivery: Delivery| delivery.id_bytes()[1];
    Some(deliveries.into_iter().map(number).collect())
}

fn unavailable() -> Error {
    Error::new(ErrorKind::Unavailable, Applied::No, "away")
}

#[tokio::test]
async fn pulls_are_served_in_the_order_of_arrival() {
    let (pulls, context) = (Arc::<Pulls>::default(), Arc::new(HandlerContext::here()));
    let [mut first, mut second, mut third] = [2, 3, 4].map(|max| join(&pulls, max));
    assert_eq!(pulls.capacity(100), 9);
    let bound = pulls.bind(HOME, 6).expect("pulls");
    assert_eq!((bound.request().max, pulls.capacity(100)), (6, 0));
    assert!(pulls.is_needed());
    bound.granted(deliveries(0..3), false, &context);
    assert_eq!(answered(&mut first), Some(vec![0, 1]));
    assert_eq!(answered(&mut second), Some(vec![2]));
    assert_eq!(answered(&mut third), None);
    // A pull that comes later stands behind the others.
    let mut fourth = join(&pulls, 1);
    let bound = pulls.bind(HOME, 1).expect("pulls");
    bound.granted(deliveries(3..4), false, &context);
    assert_eq!(answered(&mut third), Some(vec![3]));
    assert_eq!(answered(&mut fourth), None);
    drop(fourth);
    assert!(!pulls.is_needed() && pulls.bind(HOME, 9).is_none());
}

#[tokio::test]
async fn a_claim_binds_pulls_of_one_lease_only() {
    let (pulls, context) = (Arc::<Pulls>::default(), Arc::new(HandlerContext::here()));
    let short = pulls.join(request(1, 10)).expect("room");
    let long: Vec<_> = (0..2).map(|_| join(&pulls, 1)).collect();
    assert_eq!(pulls.capacity(100), 1);
    let bound = pulls.bind(HOME, 100).expect("pulls");
    assert_eq!((bound.request().max, bound.request().lease_ms), (1, 10));
    let other = pulls.bind(OTHER, 100).expect("pulls");
    assert_eq!((other.request().max, other.request().lease_ms), (2, 1_000));
    other.granted(Vec::new(), false, &context);
    bound.failed(&unavailable());
    assert_eq!(pulls.capacity(100), 1, "the first is the first again");
    drop((short, long));
}

#[tokio::test]
async fn a_pull_with_a_token_has_a_claim_of_its_own() {
    let (pulls, context) = (Arc::<Pulls>::default(), Arc::new(HandlerContext::here()));
    let mut plain = join(&pulls, 1);
    let token = Some(LeaseToken::random());
    let own = PullRequest {
        token,
        ..request(2, 1_000)
    };
    let owner = pulls.join(own).expect("room");
    let mut behind = join(&pulls, 1);
    let first = pulls.bind(HOME, 100).expect("the plain one");
    assert_eq!((first.request().max, first.request().token), (1, None));
    let second = pulls.bind(HOME, 100).expect("its owner");
    assert_eq!((second.request().max, second.request().token), (2, token));
    // No other pull gets the messages that its token was granted.
    drop(owner);
    second.granted(deliveries(0..2), false, &context);
    assert_eq!((answered(&mut behind), context.tracker.len()), (None, 1));
    first.granted(deliveries(2..3), false, &context);
    assert_eq!(answered(&mut plain), Some(vec![2]));
    context.stop.cancel();
}

#[tokio::test]
async fn messages_of_a_dropped_pull_go_to_the_next() {
    let (pulls, context) = (Arc::<Pulls>::default(), Arc::new(HandlerContext::here()));
    let (dropped, mut bound_too) = (join(&pulls, 2), join(&pulls, 1));
    let bound = pulls.bind(HOME, 3).expect("pulls");
    let mut waiting = join(&pulls, 5);
    drop(dropped);
    bound.granted(deliveries(0..3), false, &context);
    assert_eq!(answered(&mut bound_too), Some(vec![0]));
    assert_eq!(answered(&mut waiting), Some(vec![1, 2]));
    assert!(context.tracker.is_empty(), "nothing is released");
}

#[tokio::test]
async fn messages_that_no_pull_takes_are_released() {
    let (pulls, context) = (Arc::<Pulls>::default(), Arc::new(HandlerContext::here()));
    // The pull is dropped while its claim is in flight, and after its answer was sent.
    for has_answer in [false, true] {
        let ticket = join(&pulls, 1);
        let bound = pulls.bind(HOME, 1).expect("a pull");
        let before = context.tracker.len();
        if has_answer {
            bound.granted(deliveries(0..1), false, &context);
            assert_eq!(context.tracker.len(), before);
            drop(ticket);
        } else {
            drop(ticket);
            bound.granted(deliveries(0..1), false, &context);
        }
        assert_eq!(context.tracker.len(), before + 1, "a release");
    }
    assert!(!pulls.is_needed());
    context.stop.cancel();
}

#[tokio::test]
async fn a_pull_waits_until_each_partition_was_asked() {
    let (pulls, context) = (Arc::<Pulls>::default(), Arc::new(HandlerContext::here()));
    let owed = || [HOME, OTHER].map(|partition| pulls.must_ask(partition));
    assert_eq!(owed(), [false, false]);
    let unseen = pulls.join(request(1, 1_000)).expect("room");
    assert_eq!(owed(), [false, false], "the coordinator has not seen it");
    pulls.seen(&BTreeSet::from([HOME, OTHER]));
    assert_eq!(owed(), [true, true]);
    let bound = pulls.bind(HOME, 1).expect("it");
    assert_eq!(owed(), [true, true], "its claim may grant nothing");
    bound.granted(Vec::new(), false, &context);
    assert_eq!(owed(), [false, true]);
    let bound = pulls.bind(OTHER, 1).expect("it");
    bound.granted(Vec::new(), false, &context);
    assert_eq!(owed(), [false, false], "it waits for a token");
    drop(unseen);
}

#[tokio::test]
async fn a_refusal_ends_pulls_at_once_and_an_outage_does_not() {
    let (pulls, context) = (Arc::<Pulls>::default(), Arc::new(HandlerContext::here()));
    let mut ticket = join(&pulls, 1);
    pulls.bind(HOME, 1).expect("it").failed(&unavailable());
    assert_eq!(answered(&mut ticket), None);
    pulls
        .bind(HOME, 1)
        .expect("it")
        .granted(deliveries(0..1), false, &context);
    assert_eq!(answered(&mut ticket), Some(vec![0]));
    let mut refused = join(&pulls, 1);
    let denied = Error::new(ErrorKind::Denied, Applied::No, "no right");
    pulls.bind(HOME, 1).expect("it").failed(&denied);
    let answer = refused.answer.try_recv().expect("an answer");
    assert_eq!(
        answer.err().map(|error| error.kind()),
        Some(ErrorKind::Denied)
    );
}

#[tokio::test]
async fn closed_pulls_end_and_accept_no_more() {
    let (pulls, context) = (Arc::<Pulls>::default(), Arc::new(HandlerContext::here()));
    let [mut bound, mut put_back, mut waiting] = [1, 1, 1].map(|max| join(&pulls, max));
    let claim = pulls.bind(HOME, 2).expect("two");
    pulls.close();
    assert_eq!(answered(&mut waiting), Some(vec![]));
    claim.granted(deliveries(0..1), false, &context);
    assert_eq!(answered(&mut bound), Some(vec![0]), "it was on its way");
    assert_eq!(answered(&mut put_back), Some(vec![]));
    assert!(pulls.join(request(1, 1)).is_err() && !pulls.is_needed());
}

#[tokio::test]
async fn the_number_of_pulls_is_bounded() {
    let pulls = Arc::<Pulls>::default();
    let mut tickets: Vec<_> = (0..MAX_PULLS).map(|_| join(&pulls, 1)).collect();
    let bound = pulls.bind(HOME, 10);
    let refused = pulls.join(request(1, 1)).err().expect("no room");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    tickets.pop();
    tickets.push(join(&pulls, 1));
    drop(bound);
    assert_eq!(
        tickets[0].answer().await.map(|_| ()),
        None,
        "the node has ended"
    );
}

/// The kind of error that a pull was answered with, if it has its answer.
fn error_kind(ticket: &mut Ticket) -> Option<ErrorKind> {
    let answer = ticket.try_answer()?;
    Some(answer.err().expect("an error").kind())
}

#[tokio::test]
async fn a_failed_claim_counts_for_pulls_of_each_lease() {
    let pulls = Arc::<Pulls>::default();
    let [mut first, mut other, mut third] =
        [10, 20, 10].map(|lease| pulls.join(request(1, lease)).expect("room"));
    pulls.seen(&BTreeSet::from([HOME]));
    other.expire();
    third.expire();
    pulls.bind(HOME, 1).expect("one").failed(&unavailable());
    for ticket in [&mut other, &mut third] {
        assert_eq!(error_kind(ticket), Some(ErrorKind::Unavailable));
    }
    assert_eq!(error_kind(&mut first), None, "its time is not over");
    // The user lacks the right for every pull.
    let mut behind = pulls.join(request(1, 20)).expect("room");
    let denied = Error::new(ErrorKind::Denied, Applied::No, "no right");
    pulls.bind(HOME, 1).expect("one").failed(&denied);
    for ticket in [&mut first, &mut behind] {
        assert_eq!(error_kind(ticket), Some(ErrorKind::Denied));
    }
}

#[tokio::test]
async fn a_late_pull_asks_no_partition_after_a_failure() {
    let pulls = Arc::<Pulls>::default();
    let mut ticket = join(&pulls, 1);
    let now = Instant::now();
    pulls.expire(ticket.number, now);
    pulls.bind(HOME, 1).expect("it").failed(&unavailable());
    assert_eq!(error_kind(&mut ticket), None, "another server may answer");
    // With a silent server, each further partition would take the time limit of a reply.
    let Some(earlier) = now.checked_sub(OVERTIME) else {
        return; // the machine has only just started
    };
    pulls.expire(ticket.number, earlier);
    assert_eq!(error_kind(&mut ticket), Some(ErrorKind::Unavailable));
}
