//! Tests of the sizes.

use super::*;

fn figures() -> Figures {
    Figures::of_this_repository().expect("figures")
}

fn demand(rate: f64, delay_s: u64) -> Demand {
    Demand {
        rate,
        delay: Duration::from_secs(delay_s),
        payload: 100.0,
        memory: 32e9,
        replicas: 1,
        batch: 100.0,
        handler_time: Duration::ZERO,
        cores: 8.0,
    }
}

#[test]
fn an_hour_of_100_000_a_second_needs_four_masters_for_memory() {
    let plan = plan(&figures(), &demand(100_000.0, 3_600));
    assert_eq!((plan.memory / 1e9).round(), 113.0);
    assert_eq!((plan.memory_with_replicas / 1e9).round(), 226.0);
    assert_eq!(plan.masters_by_memory, 4);
    let Fit::Fits {
        busy_cores,
        masters_by_cpu,
        masters,
        partitions,
        ..
    } = plan.fit
    else {
        panic!("{plan:?}");
    };
    assert!((2.3..2.5).contains(&(busy_cores / LOAD)), "{busy_cores}");
    assert_eq!((masters_by_cpu, masters), (3, 4));
    assert_eq!(partitions, 72); // 360 million, 5 million each
}

#[test]
fn a_minute_of_a_million_a_second_needs_24_masters_for_cpu() {
    let plan = plan(&figures(), &demand(1e6, 60));
    assert_eq!((plan.memory / 1e9).round(), 19.0);
    let Fit::Fits {
        busy_cores,
        masters_by_cpu,
        masters,
        partitions,
        ..
    } = plan.fit
    else {
        panic!("{plan:?}");
    };
    assert_eq!(busy_cores.round(), 14.0);
    assert_eq!(
        (plan.masters_by_memory, masters_by_cpu, masters),
        (1, 24, 24)
    );
    assert_eq!(partitions, 96);
}

#[test]
fn two_days_of_a_million_a_second_do_not_fit_into_memory() {
    let all = demand(1e6, 48 * 3_600);
    let too_large = plan(&figures(), &all);
    assert_eq!((too_large.memory / 1e12).round(), 54.0);
    let Fit::NotInMemory { rate, delay } = too_large.fit else {
        panic!("{too_large:?}");
    };
    // The advised rate and delay fit into memory; 0.1 % more does not.
    let held = |rate, delay| {
        let plan = plan(&figures(), &Demand { rate, delay, ..all });
        plan.masters_by_memory <= MAX_PARTITIONS
    };
    assert!(held(rate * 0.999, all.delay) && !held(rate * 1.001, all.delay));
    assert!(held(1e6, delay.mul_f64(0.999)) && !held(1e6, delay.mul_f64(1.001)));
}

#[test]
fn a_small_queue_needs_one_master_and_one_partition() {
    let plan = plan(&figures(), &demand(100.0, 3_600));
    let Fit::Fits {
        masters,
        partitions,
        ..
    } = plan.fit
    else {
        panic!("{plan:?}");
    };
    assert_eq!((masters, partitions, plan.nodes), (1, 1, 1));
}

#[test]
fn more_than_256_masters_of_cpu_are_not_fast_enough() {
    let too_fast = demand(1e8, 1);
    let Fit::NotFastEnough { rate } = plan(&figures(), &too_fast).fit else {
        panic!("too fast");
    };
    let slower = Demand {
        rate: rate * 0.99,
        ..too_fast
    };
    assert!(matches!(
        plan(&figures(), &slower).fit,
        Fit::Fits {
            masters: 250..=256,
            ..
        }
    ));
}

#[test]
fn small_calls_and_busy_handlers_cost_more() {
    let base = demand(100_000.0, 60);
    let small = plan(&figures(), &Demand { batch: 4.0, ..base });
    assert!(
        small.life_us > 2.0 * plan(&figures(), &base).life_us,
        "{small:?}"
    );
    let handler_time = Duration::from_millis(5);
    let busy = plan(
        &figures(),
        &Demand {
            handler_time,
            ..base
        },
    );
    assert_eq!(busy.nodes, 63); // 500.6 cores, 8 each
}

#[test]
fn partitions_are_a_multiple_of_the_masters() {
    for masters in 1..=256 {
        for waiting in [0.0, 1e6, 6e6, 360e6, 1e10] {
            let partitions = partitions(masters, waiting);
            assert_eq!(partitions % masters, 0);
            assert!((1..=256).contains(&partitions), "{masters} {waiting}");
        }
    }
    assert_eq!(partitions(3, 0.0), 12);
    assert_eq!(partitions(1, 6e6), 4);
}

#[test]
fn payloads_take_the_next_size_class() {
    for (payload, class) in [
        (0.0, 16.0),
        (12.0, 16.0),
        (13.0, 32.0),
        (100.0, 112.0),
        (124.0, 128.0),
        (125.0, 160.0),
        (200.0, 224.0),
        (252.0, 320.0),
        (1_018.0, 1_024.0),
        (1_019.0, 1_280.0),
    ] {
        assert_eq!(allocated(payload), class, "{payload}");
    }
}

#[test]
fn figures_that_are_none_are_refused_with_the_reason() {
    let good = include_str!("../../../docs/performance/figures.json");
    for (from, to, reason) in [
        ("{", "", "expected struct"),
        (
            "\"process_us\": 6.1",
            "\"process_us\": 0",
            "process_us is 0",
        ),
        (
            "\"process_us\": 6.1",
            "\"process_us\": -1",
            "process_us is -1",
        ),
        ("\"process_us\"", "\"proces_us\"", "proces_us"),
        ("\"machine\"", "\"host\"", "host"),
        ("\"push_us\": 3.4", "\"push_us\": 0", "push_us is 0"),
        (
            "\"waiting\": 1000,",
            "\"waiting\": 20000,",
            "order of waiting",
        ),
        ("\"call_us\": 123", "\"call_us\": 750", "call_us"),
        (
            "\"message_bytes\": 314",
            "\"message_bytes\": 100",
            "message_bytes",
        ),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        let error = Figures::read(&text).expect_err(from);
        assert!(error.contains(reason), "{from} -> {to}: {error}");
    }
    assert!(Figures::read("").is_err());
}
