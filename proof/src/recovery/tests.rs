use super::*;
use crate::history::{Answer, Call, Event, Phase};
use anyhow::Result;

#[test]
fn a_summary_is_in_whole_ms_rounded_up() {
    assert_eq!(
        summary(vec![1, 2_000, 3_001]),
        Recovery {
            count: 3,
            p50: 2,
            max: 4
        }
    );
    assert_eq!(
        summary(Vec::new()),
        Recovery {
            count: 0,
            p50: 0,
            max: 0
        }
    );
}

#[test]
fn outages_and_stalls_do_not_count() {
    assert_eq!(unexcused_us(10, 100, &[]), 90);
    assert_eq!(
        unexcused_us(10, 100, &[(0, 20), (15, 30), (16, 25), (90, 200)]),
        60
    );
    assert_eq!(unexcused_us(10, 100, &[(0, 10), (100, 101)]), 90);
    assert_eq!(unexcused_us(100, 10, &[(0, 200)]), 0);
}

#[test]
fn a_late_recovery_is_reported() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("dueq-late-{}", std::process::id()));
    let late = |claimed_us: u64, lines: &[(u64, Event)]| -> Result<usize> {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let fault = |phase| Event::Fault {
            fault: "net_cut".into(),
            number: 1,
            phase,
            detail: String::new(),
        };
        let begun = [(1_000, fault(Phase::Begin)), (2_000, fault(Phase::End))];
        let what = Call::Claim {
            n: 1,
            token: "00".into(),
            lease_ms: 1,
            due: true,
        };
        let items = vec![crate::history::ClaimedItem(
            "a".into(),
            1,
            1,
            1,
            9,
            String::new(),
        )];
        let answer = Answer::Claimed {
            deadline_ms: 1,
            items,
            paused: false,
        };
        let asked = Event::Invoke {
            call: 1,
            queue: "chaos".into(),
            master: String::new(),
            epoch: 0,
            probes: false,
            what,
        };
        let told = Event::Ok {
            call: 1,
            seq: 1,
            now_us: 1,
            incarnation: "b".into(),
            epoch: 0,
            answer,
        };
        for (name, lines) in [
            ("harness.jsonl", [&begun[..], lines].concat()),
            (
                "w1.jsonl",
                vec![(claimed_us - 1, asked), (claimed_us, told)],
            ),
        ] {
            let lines = lines
                .iter()
                .map(|line| Ok(serde_json::to_string(line)? + "\n"))
                .collect::<Result<String>>()?;
            std::fs::write(folder.join(name), lines)?;
        }
        Ok(of(&folder)?.late.len())
    };
    assert_eq!(late(10_002_000, &[])?, 0);
    assert_eq!(late(10_002_001, &[])?, 1);
    assert_eq!(
        late(30_002_000, &[(25_000_000, Event::Stalled { ms: 20_000 })])?,
        0
    );
    assert_eq!(
        late(30_002_000, &[(9_000_000, Event::Calm)])?,
        0,
        "there may have been nothing to do"
    );
    assert_eq!(late(30_002_000, &[(12_000_000, Event::Calm)])?, 1);
    Ok(std::fs::remove_dir_all(&folder)?)
}

#[test]
fn failover_recovery_counts_grants_of_the_new_master() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("dueq-recovery-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let write = |name: &str, lines: &[(u64, Event)]| -> Result<()> {
        let lines = lines
            .iter()
            .map(|line| Ok(serde_json::to_string(line)? + "\n"))
            .collect::<Result<String>>()?;
        Ok(std::fs::write(folder.join(name), lines)?)
    };
    let fault = |phase| Event::Fault {
        fault: "failover".into(),
        number: 1,
        phase,
        detail: String::new(),
    };
    let undone = Event::Undone {
        queue: "chaos".into(),
        incarnation: "b".into(),
        survived: 10,
        next: 100,
    };
    write(
        "harness.jsonl",
        &[
            (1_000, fault(Phase::Begin)),
            (50_000, undone),
            (900_000, fault(Phase::End)),
        ],
    )?;
    let claim = |call| {
        let what = Call::Claim {
            n: 1,
            token: "00".into(),
            lease_ms: 1,
            due: true,
        };
        Event::Invoke {
            call,
            queue: "chaos".into(),
            master: String::new(),
            epoch: 0,
            probes: false,
            what,
        }
    };
    let granted = |call, seq| {
        let items = vec![crate::history::ClaimedItem(
            "a".into(),
            1,
            1,
            1,
            9,
            String::new(),
        )];
        let answer = Answer::Claimed {
            deadline_ms: 1,
            items,
            paused: false,
        };
        Event::Ok {
            call,
            seq,
            now_us: 1,
            incarnation: "b".into(),
            epoch: 0,
            answer,
        }
    };
    // The first claim was sent too early; the old master granted the second one.
    let lines = [
        (40_000, claim(1)),
        (60_000, granted(1, 101)),
        (61_000, claim(2)),
        (62_000, granted(2, 12)),
    ];
    write("w1.jsonl", &lines)?;
    write("w2.jsonl", &[(63_000, claim(1)), (70_001, granted(1, 102))])?;
    let recoveries = of(&folder)?;
    std::fs::remove_dir_all(&folder)?;
    assert_eq!(
        recoveries.by_fault.get("failover"),
        Some(&Recovery {
            count: 1,
            p50: 21,
            max: 21
        })
    );
    Ok(())
}
