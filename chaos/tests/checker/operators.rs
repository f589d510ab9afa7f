//! What operators do, and faults that were not applied.

use dueq_chaos::history::Phase;

use crate::story::Story;

#[test]
fn a_fault_that_was_not_applied_leaves_a_run_valid() {
    let mut story = Story::new();
    story.push("a", "+0", "CREATED");
    let token = story.at(5).claim("a", 0, 1);
    story.ack("a", &token).fault("kill_blocked", 1, Phase::Begin).fault("kill_blocked", 1, Phase::NotApplied);
    assert!(story.verdict().valid);
}
