//! A report of each day's sales, made every night at 02:30 in the shop's time zone.
//!
//! The schedule is declared at each start of the service. Redis makes a tick for each night, and one
//! of the workers makes the report. The report is that of the day before the tick's nominal time, so
//! a late tick or a second attempt makes the same one.
//!
//! A night takes long, so the example makes the ticks of the last nights again, as after a repair.
//!
//! `scripts/with-server cargo run --features schedules --example nightly_report -- --zone Europe/Paris`

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, ensure};
use clap::Parser;
use dueq::schedules::{MissedPolicy, OverlapPolicy, Schedule};
use dueq::{Client, Delivery, Queue};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use tokio::sync::mpsc;

const DAY: Duration = Duration::from_secs(86_400);

/// Makes the sales reports of the last nights. REDIS_URL names the server.
#[derive(Parser)]
struct Args {
    /// The time zone of the shop
    #[arg(long, value_name = "ZONE", default_value = "Europe/Paris")]
    zone: String,
    /// How many of the last nights
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    nights: u32,
    /// Then wait for the coming nights, until Ctrl-C
    #[arg(long)]
    wait: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let name = format!("example-nightly-report-{}", std::process::id());
    let reports = Client::connect(&url).await?.queue(&name)?;
    let result = tokio::select! {
        result = story(&reports, &args) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
    };
    reports.delete().await?;
    result
}

/// The declaration of the service. `within` drops a report that would be a day late.
fn nightly(zone: &str) -> Result<Schedule, dueq::Error> {
    Ok(Schedule::cron("30 2 * * *")?
        .name("nightly")
        .zone(zone)
        .payload("sales")
        .missed(MissedPolicy::One)
        .within(DAY)
        .overlap(OverlapPolicy::Skip))
}

async fn story(reports: &Queue, args: &Args) -> anyhow::Result<()> {
    let schedule = nightly(&args.zone)?;
    let zone = TimeZone::get(&args.zone)?;
    let changes = reports
        .schedules("shop")
        .revision(42)
        .prune(true)
        .apply([schedule.clone()])
        .await?;
    ensure!(changes.created.len() == 1, "the schedule was there");
    for fire in reports.schedule("nightly").next(3).await? {
        println!("next night: {}", local(fire.nominal_ms, &zone)?);
    }
    // Each process of a deploy declares the same: nothing changes. An old process cannot undo it.
    let shop = || reports.schedules("shop");
    let again = shop().revision(42).apply([schedule]).await?;
    ensure!(again.kept.len() == 1, "the same schedule was changed");
    let old = shop().revision(41).prune(true).apply([]).await;
    let refusal = old.err().context("an old process removed the schedule")?;
    println!("an old process is refused: {refusal}");

    let (made, mut reported) = mpsc::unbounded_channel();
    let at = zone.clone();
    let make = move |delivery: Delivery| {
        // The nominal time says which day it is: not the clock of the handler.
        let day = delivery.tick().map(|tick| day_before(tick.nominal_ms, &at));
        let _ = made.send(day);
        async {}
    };
    let worker = reports.worker().spawn(make)?;
    let now = SystemTime::now();
    let filled = reports
        .schedule("nightly")
        .backfill(now - DAY * args.nights, now)
        .await?;
    let mut days = BTreeMap::new();
    while days.len() < usize::try_from(filled.created)? {
        let day = reported.recv().await.context("the worker is gone")?;
        let day = day.context("a message is no tick")??;
        println!("report of {day}");
        let earlier = days.insert(day, ());
        ensure!(earlier.is_none(), "two reports of {day}");
    }
    println!("{} reports, each of another day", days.len());
    if args.wait {
        while let Some(day) = reported.recv().await {
            println!("report of {}", day.context("a message is no tick")??);
        }
    }
    worker.shutdown().await?;
    Ok(())
}

fn local(unix_ms: u64, zone: &TimeZone) -> anyhow::Result<jiff::Zoned> {
    let time = Timestamp::from_millisecond(i64::try_from(unix_ms)?)?;
    Ok(time.to_zoned(zone.clone()))
}

/// The day that a report is about. A pure function of the nominal time: each attempt gets the same.
fn day_before(nominal_ms: u64, zone: &TimeZone) -> anyhow::Result<Date> {
    Ok(local(nominal_ms, zone)?.date().checked_sub(1.day())?)
}
