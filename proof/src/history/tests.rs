use std::fs::File;
use std::io::Write;

use anyhow::Result;

use super::*;

#[test]
fn written_lines_are_read_back_without_a_torn_one() -> Result<()> {
    let path = std::env::temp_dir().join(format!("dueq-history-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let events = [
        Event::Begin {
            role: Role::Worker,
            process: "worker-1".into(),
            pid: 7,
        },
        Event::Ok {
            call: 1,
            seq: 9,
            now_us: 5,
            incarnation: "b".into(),
            epoch: 0,
            answer: Answer::Claimed {
                deadline_ms: 3,
                items: vec![ClaimedItem("a".into(), 1, 2, 1, 9, String::new())],
                paused: false,
            },
        },
        Event::NoticedEmpty,
        Event::Asked {
            op: 1,
            queue: "q".into(),
            verb: Verb::Push,
            ids: vec!["a".into()],
            replicas: 0,
        },
        Event::Asked {
            op: 2,
            queue: "q".into(),
            verb: Verb::Push,
            ids: vec!["a".into()],
            replicas: 1,
        },
    ];
    let writer = Writer::create(&path)?;
    events.iter().try_for_each(|event| writer.write(event))?;
    File::options()
        .append(true)
        .open(&path)?
        .write_all(b"[1, {\"torn")?;
    let lines: Vec<_> = read(&path)?.collect::<Result<_>>()?;
    std::fs::remove_file(&path)?;
    assert!(lines.is_sorted_by_key(|(t_us, _)| *t_us));
    assert!(lines.into_iter().map(|(_, event)| event).eq(events));
    Ok(())
}
