//! Tests of the producers' plans.

use super::*;

#[test]
fn plan_depends_only_on_seed_and_name() {
    let plan = |seed, name| {
        let mut plan = Plan::new(seed, name, &planned_queues(1)[0], 0, false);
        (0..200).map(|_| plan.step(1_000_000)).collect::<Vec<_>>()
    };
    assert_eq!(plan(1, "p1"), plan(1, "p1"));
    assert_ne!(plan(1, "p1"), plan(2, "p1"));
    assert_ne!(plan(1, "p1"), plan(1, "p2"));
}

#[test]
fn plan_has_every_kind_of_push() {
    let mut plan = Plan::new(7, "p1", &planned_queues(1)[0], 0, false);
    let steps: Vec<_> = (0..4_000).map(|_| plan.step(1_000_000_000)).collect();
    let pushes: Vec<_> = steps.iter().flat_map(|step| &step.pushes).collect();
    let later: Vec<_> = steps
        .iter()
        .flat_map(|step| &step.later)
        .map(|(_, push)| push)
        .collect();
    type Kind<'a> = (&'a str, &'a dyn Fn(&Push) -> bool);
    let some: &[Kind<'_>] = &[
        ("at once", &|push| push.due == Due::AfterMs(0)),
        ("far ahead", &|push| {
            matches!(push.due, Due::AfterMs(120_000..))
        }),
        ("past", &|push| {
            matches!(push.due, Due::AtMs(..1_000_000_000))
        }),
        ("at 0", &|push| push.due == Due::AtMs(0)),
        ("since yesterday", &|push| {
            push.due == Due::AtMs(1_000_000_000 - DAY_MS)
        }),
        ("1 MiB", &|push| push.bytes == PAYLOAD_LIMIT),
        ("NUL", &|push| {
            payload::make(&push.id, 1, push.bytes).contains(&0)
        }),
        ("a trace", &|push| trace_parent(&push.id).is_some()),
        ("a dot and a per cent sign", &|push| push.id.contains(".%")),
        ("too far", &|push| {
            matches!(push.due, Due::AtMs(TOO_FAR_MS..))
        }),
        ("10 KB", &|push| push.bytes == 10_240),
        ("UTF-8", &|push| !push.id.is_ascii()),
        ("200 bytes", &|push| push.id.len() == 200),
        ("too long", &|push| push.id.len() > 200),
        ("few attempts", &|push| push.max_attempts == Some(1)),
        ("a cost", &|push| push.cost == MOST_COST),
        ("dropped soon", &|push| {
            push.expires.is_some_and(|expires| {
                expires.drops && matches!(expires.when, ExpiresWhen::AfterMs(..400))
            })
        }),
        ("dead at a time", &|push| {
            push.expires.is_some_and(|expires| {
                !expires.drops && matches!(expires.when, ExpiresWhen::AtMs(_))
            })
        }),
    ];
    for (what, is) in some {
        assert!(pushes.iter().any(|push| is(push)), "{what}");
    }
    // A ready entry is `due:id`, so ids on the ready list must contain colons too.
    let burst = |step: &&Step| step.pushes.len() > 199;
    assert!(
        steps
            .iter()
            .filter(burst)
            .any(|step| step.pushes.iter().any(|push| push.id.contains(':')))
    );
    assert!(
        steps.iter().any(|step| step.pushes.len() == 1)
            && steps.iter().any(|step| step.pushes.len() > 199)
    );
    assert!(
        later
            .iter()
            .any(|push| push.version == first_version("chaos") + 1)
    );
    let ids: std::collections::HashSet<_> = pushes.iter().map(|push| &push.id).collect();
    assert_eq!(ids.len(), pushes.len(), "a new push has a new id");
}

#[test]
fn plan_with_ids_pushed_once_repeats_no_id() {
    let mut plan = Plan::new(7, "p1", &planned_queues(1)[0], 0, true);
    let steps: Vec<_> = (0..4_000).map(|_| plan.step(1_000_000_000)).collect();
    assert!(steps.iter().all(|step| step.later.is_empty()));
}

#[test]
fn poison_message_is_pushed_with_49_innocent_ones() {
    let mut plan = Plan::new(7, "p1", &planned_queues(1)[0], 1_000, false);
    let steps: Vec<_> = (0..500).map(|_| plan.step(0)).collect();
    let poisoned = |step: &&Step| step.pushes.iter().any(|push| push.id.ends_with(POISON));
    let found: Vec<_> = steps.iter().filter(poisoned).collect();
    assert!(found.len() > 1 && found.iter().all(|step| step.pushes.len() == 50));
}

#[test]
fn a_plan_for_release_0_1_has_no_option_of_later_releases() {
    let mut plan = Plan::new(7, "p1", &planned_queues(1)[0], 0, false).for_older(true);
    let mut pushes = (0..1_000).flat_map(|_| plan.step(1_000_000_000).pushes);
    assert!(pushes.all(|push| push.expires.is_none() && push.cost == 1));
}
