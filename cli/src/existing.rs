//! Queues that do not exist: commands of operators report them, suggest similar names, and do not
//! create them.

use std::time::Duration;

use anyhow::anyhow;
use dueq::{Client, Queue};

use crate::Common;
use crate::output::visible;

/// The longest search for similar names: a server may hold a hundred million keys.
const SEARCH: Duration = Duration::from_secs(2);
/// How many near names are suggested.
const SUGGESTED: usize = 3;

/// The text if the command has created the queue.
pub(crate) const MADE: &str = "made the new queue";

/// Fails if there is no such queue.
pub(crate) async fn require(client: &Client, queue: &Queue) -> anyhow::Result<()> {
    match absence(client, queue).await? {
        Some(reason) => Err(anyhow!(reason)),
        None => Ok(()),
    }
}

/// Notes on standard error that there is no such queue. Ignores a failed query: the command itself
/// has already finished.
pub(crate) async fn note(common: &Common, client: &Client, queue: &Queue) {
    if let Ok(Some(reason)) = absence(client, queue).await {
        common.remark(&reason);
    }
}

/// The message about a queue that does not exist, with near names; `None` if it exists.
pub(crate) async fn absence(client: &Client, queue: &Queue) -> anyhow::Result<Option<String>> {
    if queue.exists().await? {
        return Ok(None);
    }
    let advice = match &near(client, queue.name()).await[..] {
        [] => "`dueq queues` lists the existing ones".to_owned(),
        names => format!("did you mean {}?", listed(names)),
    };
    Ok(Some(format!(
        "there is no queue {}: {advice}",
        visible(queue.name().as_bytes())
    )))
}

/// The queues with names near this one, the nearest first. Empty if the user may not SCAN.
async fn near(client: &Client, name: &str) -> Vec<String> {
    match tokio::time::timeout(SEARCH, client.queues()).await {
        Ok(Ok(names)) => nearest(name, names),
        _ => Vec::new(),
    }
}

/// Notes near names on standard error after the command created a queue: its name may be mistyped.
pub(crate) async fn note_near(common: &Common, client: &Client, name: &str) {
    let names = near(client, name).await;
    if !names.is_empty() {
        common.remark(&format!("near name: {}", listed(&names)));
    }
}

/// Joins names for people.
fn listed(names: &[String]) -> String {
    names
        .iter()
        .map(|name| visible(name.as_bytes()))
        .collect::<Vec<_>>()
        .join(" or ")
}

/// The `names` that a typing error could turn into `name`.
fn nearest(name: &str, names: Vec<String>) -> Vec<String> {
    let (wanted, limit) = (name.to_lowercase(), ((name.chars().count() + 1) / 3).max(1));
    let mut near: Vec<(usize, String)> = names
        .into_iter()
        .filter(|known| known != name)
        .map(|known| (strsim::osa_distance(&wanted, &known.to_lowercase()), known))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    near.sort();
    near.into_iter()
        .take(SUGGESTED)
        .map(|(_, known)| known)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_differ_by_a_typing_error() {
        let names = || {
            ["orders", "order", "mail", "x", "Orders2", "payments"]
                .map(str::to_owned)
                .to_vec()
        };
        assert_eq!(nearest("ordres", names()), ["orders", "Orders2", "order"]);
        assert_eq!(nearest("Mail", names()), ["mail"]);
        assert_eq!(nearest("y", names()), ["x"], "one letter is one error");
        assert_eq!(nearest("invoices", names()), Vec::<String>::new());
    }
}
