//! Histories of simulated queues: a correct queue gives no violations, and each fault is caught.

use dueq_proof::check::Kind;
use dueq_proof::history::Event;

use crate::simulation::{Simulation, Wrong};

#[test]
fn a_correct_simulated_queue_is_clean() {
    let mut deliveries = 0;
    for seed in 0..400 {
        let verdict = Simulation::new(seed, Wrong::Nothing).run();
        assert!(verdict.is_clean(), "seed {seed}: {:#?}", verdict.examples);
        assert_eq!(verdict.unjudged, 0, "seed {seed}");
        deliveries += verdict.deliveries;
    }
    assert!(deliveries > 10_000, "{deliveries}");
}

#[test]
fn a_faulty_simulated_queue_is_caught() {
    let caught_by: [(Wrong, &[Kind]); 12] = [
        (Wrong::AckIsForgotten, &[Kind::ClaimedAfterAck]),
        (Wrong::CrashIsFree, &[Kind::Miscounted]),
        (Wrong::CancelIsForgotten, &[Kind::FiredAfterCancel]),
        (Wrong::TokenIsIgnored, &[Kind::StaleTokensAccepted]),
        (Wrong::ClaimIsEarly, &[Kind::Early, Kind::RetriedEarly]),
        (Wrong::PushIsForgotten, &[Kind::Lost]),
        (Wrong::MemoryIsIgnored, &[Kind::UnexplainedDuplicates]),
        (
            Wrong::ReapIsEarly,
            &[Kind::OverlappingLeases, Kind::LeasesCutShort],
        ),
        (Wrong::RetryIsCountedTwice, &[Kind::Miscounted]),
        (Wrong::ClaimTakesTheNewest, &[Kind::OutOfOrder]),
        (Wrong::ClaimOverlooks, &[Kind::Late, Kind::OutOfOrder]),
        (Wrong::ExtendIsForgotten, &[Kind::WrongTimes]),
    ];
    for (wrong, kinds) in caught_by {
        let verdicts: Vec<_> = (0..40)
            .map(|seed| Simulation::new(seed, wrong).run())
            .collect();
        for kind in kinds {
            let runs = verdicts
                .iter()
                .filter(|verdict| verdict.count(*kind) > 0)
                .count();
            assert!(
                runs > 3,
                "{wrong:?} was caught as {kind:?} in {runs} runs of 40"
            );
        }
    }
}

#[test]
fn a_handler_without_a_claim_is_found() {
    let mut simulation = Simulation::new(1, Wrong::Nothing);
    let started = Event::Started {
        by_hand: false,
        queue: "q".into(),
        id: "m1".into(),
        version: 1,
        attempt: 1,
        due_ms: 0,
        started_us: 0,
    };
    simulation.story.write(started);
    assert_eq!(simulation.run().count(Kind::Unexpected), 1);
}
