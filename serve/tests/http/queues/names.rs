//! Both spellings of the names of queues.

use anyhow::Result;

use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn every_valid_name_has_two_spellings() -> Result<()> {
    let instance = Instance::open().await?;
    for (name, percent, base64) in [
        ("orders", "orders", "~b3JkZXJz"),
        ("a b?#%~", "a%20b%3F%23%25%7E", "~YSBiPyMlfg"),
        ("f\u{fc}r", "f%C3%BCr", "~ZsO8cg"),
        ("~x", "%7Ex", "~fng"),
    ] {
        instance.queue(name).await?;
        for segment in [percent, base64] {
            let answer = instance.call(&format!("GET /v1/queues/{segment}")).await?;
            assert_eq!(answer.status, 200, "{answer:?}");
            let stats = answer.json()?;
            assert_eq!(
                (stats["queue"].as_str(), stats["scheduled"].as_u64()),
                (Some(name), Some(1))
            );
        }
    }
    Ok(())
}
