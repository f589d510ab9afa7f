use super::report::Figures;
use super::world::{self, Settings};

fn simulated(nodes: usize, partitions: u32, is_churning: bool, seed: u64) -> Figures {
    world::run(Settings {
        nodes,
        partitions,
        masters: 3,
        length: 60_000_000,
        every: 1_000_000,
        is_churning,
        seed,
    })
}

#[test]
fn one_seed_gives_one_result() {
    let one = simulated(20, 8, true, 7);
    assert_eq!(one, simulated(20, 8, true, 7));
    assert_ne!(one, simulated(20, 8, true, 8));
}

#[test]
fn calm_nodes_make_one_call_for_each_due_instant() {
    for (nodes, partitions) in [(1, 1), (10, 1), (50, 1), (1, 12), (40, 12)] {
        let figures = simulated(nodes, partitions, false, 1);
        let calls = figures.calls_per_instant();
        assert!(
            (0.95..1.1).contains(&calls),
            "{nodes} {partitions}: {}",
            figures.json()
        );
        assert!(figures.late_ms(0.99) < 5.0, "{}", figures.json());
        assert_eq!(figures.longest_gap, 0);
        assert!(figures.instants >= u64::from(partitions) * 50);
        let missing = figures.instants - figures.handled_count() as u64;
        assert!(
            missing <= u64::from(partitions),
            "those of the last half second"
        );
    }
}

#[test]
fn deaths_and_joins_leave_no_partition_for_4_s() {
    let figures = simulated(60, 16, true, 3);
    assert!(figures.longest_gap <= 4_000_000, "{}", figures.json());
    assert!(figures.late_ms(1.0) <= 4_500.0, "{}", figures.json());
}
