//! Queues of several partitions.

mod examined;
mod interrupted;
mod live;
mod losses;
mod one_queue;
mod repartition;
mod store;
mod store_away;
mod stranded;
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
    let args: Vec<&[u8]> = [""].iter().chain(args).map(|arg| arg.as_bytes()).collect();
    let (_, answer): (redis::Value, String) = call(setup, tag, "dueq_remap", &args).await?;
    Ok(answer)
}

/// Calls a function at the partition with this tag.
async fn call<T: redis::FromRedisValue>(
    setup: &Setup,
    tag: &str,
    function: &str,
    args: &[&[u8]],
) -> Result<T> {
    setup.client.load_functions().await?;
    let (home, base) = (base(setup, "-"), base(setup, tag));
    let keys: Vec<String> = setup
        .queue
        .keys()
        .iter()
        .map(|key| key.replace(&home, &base))
        .collect();
    let mut command = redis::cmd("FCALL");
    command.arg(function).arg(10).arg(&keys).arg(args);
    let mut connection = setup.redis().await?;
    Ok(command.query_async(&mut connection).await?)
}
