//! Queues of several partitions.

mod examined;
mod interrupted;
mod live;
mod losses;
mod one_queue;
mod repartition;
mod traffic;
mod workers;

use anyhow::Result;

use crate::support::Setup;

/// The base of the keys of the partition with this tag.
fn base(setup: &Setup, tag: &str) -> String {
    match tag {
        "-" => format!("dueq:{{{}}}", setup.queue.name()),
        _ => format!("dueq:{{{}/{tag}}}", setup.queue.name()),
    }
}

/// Calls `remap` at the partition with this tag, and returns its answer.
async fn remap(setup: &Setup, tag: &str, args: &[&str]) -> Result<String> {
    setup.client.load_functions().await?;
    let (home, base) = (base(setup, "-"), base(setup, tag));
    let keys: Vec<String> = setup
        .queue
        .keys()
        .iter()
        .map(|key| key.replace(&home, &base))
        .collect();
    let mut words = vec!["FCALL", "dueq_remap", "10"];
    words.extend(keys.iter().map(String::as_str));
    words.push("");
    words.extend(args);
    let (_, answer): (redis::Value, String) = setup.command(&words).await?;
    Ok(answer)
}
