//! What `/readyz` takes for an answer of Redis.

use std::time::Instant;

use anyhow::{Result, ensure};
use dueq_testkit::Server;

use crate::instance::{Instance, LIMIT};

/// Redis refuses a user the key that the probe reads, but has logged the user in: that is an answer. It
/// does not log in a user whose password has changed: then all calls of the server fail.
#[tokio::test(flavor = "multi_thread")]
async fn refused_key_is_an_answer_and_refused_user_is_none() -> Result<()> {
    let redis = Server::start(&[])?;
    let user = |words: &[&str]| redis.command(&[&["ACL", "SETUSER", "limited"], words].concat());
    user(&["on", ">secret", "+@all", "~other:*", "&*"])?;
    let url = format!("redis://limited:secret@127.0.0.1:{}/", redis.port());
    let instance = Instance::before(&url).await?;
    assert_eq!(instance.call("GET /readyz").await?.status, 200);
    user(&["resetpass", ">renewed"])?;
    redis.command(&["CLIENT", "KILL", "USER", "limited"])?;
    let end = Instant::now() + LIMIT;
    while instance.call("GET /readyz").await?.status != 503 {
        ensure!(Instant::now() < end, "still ready");
    }
    Ok(())
}
