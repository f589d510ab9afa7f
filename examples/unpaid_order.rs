//! An order is cancelled after 30 minutes unless it is paid.
//!
//! Each order pushes a message that is due in 30 minutes; its payment cancels the message. Exactly
//! one of the two wins, and `Cancelled` reports which. Four buyers pay at four moments: in time,
//! during the cancellation, after it, and after the cancellation has failed.
//!
//! `scripts/with-server cargo run --example unpaid_order -- --speed 600`

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Parser;
use dueq::outcomes::CancelOutcome;
use dueq::{Client, Delivery, Json, Queue, Settlement};
use tokio::sync::{Notify, mpsc};

/// The payload is the buyer's name.
type Orders = Queue<Json<String>>;

const TIME_TO_PAY: Duration = Duration::from_secs(30 * 60);

/// Cancels orders that are not paid within 30 minutes. REDIS_URL names the server.
#[derive(Parser)]
struct Args {
    /// How many times faster than real time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    speed: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let speed = Args::parse().speed;
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let name = format!("example-unpaid-order-{}", std::process::id());
    let orders: Orders = Client::connect(&url).await?.queue_of(&name)?;
    let result = tokio::select! {
        result = story(&orders, TIME_TO_PAY / speed) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
    };
    orders.delete().await?;
    result
}

async fn story(orders: &Orders, time_to_pay: Duration) -> anyhow::Result<()> {
    let placed = Instant::now();
    for buyer in ["ann", "bob", "cid", "dee"] {
        let push = orders.push(buyer).id(format!("order:{buyer}"));
        push.delay(time_to_pay).await?;
        println!("{buyer} orders, and has {time_to_pay:?} to pay");
    }
    let ann = pay(orders, "ann").await?;
    ensure!(ann == CancelOutcome::Cancelled, "ann paid in time");

    let (began, mut begun) = mpsc::unbounded_channel();
    let paid = Arc::new(Notify::new());
    let cid_paid = Arc::clone(&paid);
    let cancel_order = move |buyer: String, delivery: Delivery| {
        let (began, paid) = (began.clone(), Arc::clone(&paid));
        async move {
            let late = delivery.lateness();
            println!("{buyer} has not paid in time: the order is cancelled ({late:?} late)");
            let _ = began.send((buyer.clone(), placed.elapsed()));
            match buyer.as_str() {
                // The cancellation takes time, and this buyer pays meanwhile.
                "cid" => paid.notified().await,
                "dee" => return Settlement::bury("the warehouse does not know this order"),
                _ => {}
            }
            Settlement::Ack
        }
    };
    // A real shop's worker runs all the time. This one stops after the last event.
    let worker = orders.worker().spawn(cancel_order)?;
    for _ in ["bob", "cid", "dee"] {
        let (buyer, after) = begun.recv().await.context("the worker is gone")?;
        ensure!(
            after >= time_to_pay && buyer != "ann",
            "{buyer} had {after:?} to pay"
        );
        if buyer == "cid" {
            let cid = pay(orders, "cid").await?;
            ensure!(
                cid == CancelOutcome::Leased,
                "cid's order was being cancelled"
            );
            cid_paid.notify_one();
        }
    }
    // The worker settles its messages first, so the state that later payments find is final.
    worker.shutdown().await?;

    let bob = pay(orders, "bob").await?;
    ensure!(bob == CancelOutcome::Absent, "bob's order was cancelled");
    let dee = pay(orders, "dee").await?;
    ensure!(
        dee == CancelOutcome::Dead,
        "dee's order could not be cancelled"
    );
    println!("each payment learned what had become of its order");
    Ok(())
}

/// A payment arrives. The state of the message decides its effect.
async fn pay(orders: &Orders, buyer: &str) -> anyhow::Result<CancelOutcome> {
    let outcome = orders.cancel(format!("order:{buyer}")).await?;
    let meaning = match outcome {
        CancelOutcome::Cancelled => "in time: the order ships",
        CancelOutcome::Leased => {
            "too late, the order is being cancelled just now: the money goes back"
        }
        CancelOutcome::Absent => "too late, the order is cancelled: the money goes back",
        CancelOutcome::Dead => "but cancelling the order had failed: an operator must look at it",
        other => bail!("unknown outcome {other:?}"),
    };
    println!("{buyer} pays: {meaning}");
    Ok(outcome)
}
