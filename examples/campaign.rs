//! One moment, many recipients: a campaign goes out at 20:00 in Shanghai.
//!
//! jiff converts the civil time and its time zone to an instant. `push_many` stores one message per
//! recipient. The workers deliver each message once, at that instant and not earlier.
//!
//! `scripts/with-server cargo run --example campaign -- --at '2030-12-01T20:00:00[Asia/Shanghai]' --speed 100000000`

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, ensure};
use clap::Parser;
use dueq::{Client, Delivery, Due, Message, Queue};
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::Disambiguation;
use jiff::{Timestamp, ToSpan, Zoned};
use tokio::sync::mpsc;

/// Sends a campaign to many recipients at one moment. REDIS_URL names the server.
#[derive(Parser)]
struct Args {
    /// When, with a time zone: 2030-12-01T20:00:00[Asia/Shanghai]; by default the next 20:00 in
    /// Shanghai
    #[arg(long, value_name = "TIME", value_parser = moment)]
    at: Option<Zoned>,
    /// Number of recipients
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    recipients: u32,
    /// How many times faster than real time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    speed: u32,
}

/// Rejects a civil time that a change of daylight saving time skips or repeats.
fn moment(text: &str) -> Result<Zoned, jiff::Error> {
    static PARSER: DateTimeParser = DateTimeParser::new().disambiguation(Disambiguation::Reject);
    PARSER.parse_zoned(text)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let at = args.at.map_or_else(next_evening, Ok)?;
    let now = Timestamp::now();
    let left = Duration::try_from(at.timestamp().duration_since(now))
        .ok()
        .with_context(|| format!("{at} is over"))?;
    // At speed 1 this is `at` itself.
    let due = Due::from(SystemTime::from(now) + left / args.speed);
    println!(
        "the campaign goes out at {at}, which is {}: in {:.1?}",
        at.timestamp(),
        left / args.speed
    );

    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let name = format!("example-campaign-{}", std::process::id());
    let campaign = Client::connect(&url).await?.queue(&name)?;
    let result = tokio::select! {
        result = story(&campaign, due, args.recipients) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
    };
    campaign.delete().await?;
    result
}

fn next_evening() -> anyhow::Result<Zoned> {
    let now = Zoned::now().in_tz("Asia/Shanghai")?;
    let evening = now
        .with()
        .hour(20)
        .minute(0)
        .second(0)
        .subsec_nanosecond(0)
        .build()?;
    Ok(if evening > now {
        evening
    } else {
        evening.checked_add(1.day())?
    })
}

async fn story(campaign: &Queue, due: Due, recipients: u32) -> anyhow::Result<()> {
    let mails = (0..recipients).map(|n| {
        Message::new("20 % off tonight")
            .id(format!("customer:{n}"))
            .due(due)
    });
    for pushed in campaign.push_many(mails).await {
        pushed?;
    }
    println!("{recipients} recipients wait");

    let (sent, mut outbox) = mpsc::unbounded_channel();
    let send = move |delivery: Delivery| {
        let customer = delivery.id().into_owned();
        let _ = sent.send((customer, delivery.due_ms(), delivery.lateness()));
        async {}
    };
    let worker = campaign.worker().spawn(send)?;
    let mut reached = HashMap::new();
    while reached.len() < recipients as usize {
        let (customer, due_ms, late) = outbox.recv().await.context("the worker is gone")?;
        ensure!(
            Due::at_ms(due_ms) == due,
            "{customer} was due at another time"
        );
        let earlier = reached.insert(customer, late);
        ensure!(earlier.is_none(), "a recipient was written to twice");
    }
    // The worker settles its messages, so no more can arrive.
    worker.shutdown().await?;
    ensure!(
        outbox.try_recv().is_err(),
        "a recipient was written to twice"
    );
    let mut late: Vec<_> = reached.into_values().collect();
    late.sort();
    let [first, half, last] = [0, late.len() / 2, late.len() - 1].map(|n| late[n]);
    println!(
        "{recipients} recipients reached, each once: the first after {first:?}, half after {half:?}, all after {last:?}"
    );
    Ok(())
}
