//! Schedules and lists of fires as texts of the scripts.

use std::time::{Duration, UNIX_EPOCH};

use crate::model::push_rules::OnExpire;
use crate::model::schedule::{
    FireList, MissedPolicy, OverlapPolicy, Schedule, listed_fires, option_words,
};

#[test]
fn a_schedule_is_read_as_it_was_written() {
    let ms = Duration::from_millis;
    let all = Schedule::every(ms(900_000))
        .name("sync")
        .anchor(UNIX_EPOCH + ms(5))
        .missed(MissedPolicy::All { max: 50 })
        .within(ms(60_000))
        .overlap(OverlapPolicy::Replace)
        .jitter(ms(1_000))
        .start(UNIX_EPOCH + ms(7))
        .end(UNIX_EPOCH + ms(8))
        .limit(9)
        .max_attempts(3)
        .expires_after(ms(4))
        .on_expire(OnExpire::Drop);
    let cron = Schedule::cron(" 0  2 * * * ").expect("a pattern");
    let cron = cron.zone("Europe/Paris").name("report");
    let plain = Schedule::every(ms(10)).name("beat");
    for (schedule, spec, options) in [
        (
            all,
            "every=900000 anchor=5 missed=all within=60000 max=50 overlap=replace jitter=1000 start=7 end=8 limit=9",
            "max_attempts=3 expires=+4 on_expire=drop",
        ),
        (cron, "zone=Europe/Paris", ""),
        (plain, "every=10", ""),
    ] {
        assert_eq!(schedule.spec_words(schedule.zone.as_deref()), spec);
        assert_eq!(option_words(&schedule), options);
        let spec = format!("set=billing {spec} later=1");
        let read = Schedule::parse(&schedule.name, &spec, options, schedule.pattern());
        assert_eq!(read, Some(schedule));
    }
    assert_eq!(Schedule::parse("x", "set=billing", "", ""), None);
}

#[test]
fn a_list_of_fires_says_whether_it_is_the_end() {
    let cron = Schedule::cron("0 * * * *").expect("a pattern").zone("UTC");
    let cron = cron.end(UNIX_EPOCH + Duration::from_secs(10_800));
    let text = |list: FireList| {
        list.encode()
            .split_once(' ')
            .map(|(_, rest)| rest.to_owned())
    };
    let list = |after_ms, most| text(listed_fires(&cron, after_ms, most).expect("fires"));
    assert_eq!(list(0, 2).as_deref(), Some("0\n3600000 7200000"));
    assert_eq!(list(0, 3).as_deref(), Some("1\n3600000 7200000 10800000"));
    assert_eq!(list(10_800_000, 3).as_deref(), Some("1\n"));
    // Fires at or after 2200-01-01 do not exist for dueq.
    let yearly = Schedule::cron("@yearly").expect("a pattern").zone("UTC");
    let list = listed_fires(&yearly, 1_795_564_800_000, 512).expect("fires");
    assert_eq!((list.times.len(), list.is_final()), (173, true));
}

#[test]
fn jitter_equals_that_of_the_scripts() {
    // redis-cli eval "return tonumber(string.sub(redis.sha1hex('sync@3600000'), 1, 8), 16) % 60000" 0
    let sync = Schedule::every(Duration::from_secs(3_600)).name("sync");
    let fire = sync.jitter(Duration::from_secs(60)).fire_at(3_600_000);
    assert_eq!(fire.due_ms - fire.nominal_ms, 44571);
}
