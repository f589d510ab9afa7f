//! `/search` and `/go`.

use anyhow::Result;

use crate::dashboard::look::{led, look};
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn search_finds_an_id_in_all_queues() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    for name in ["orders", "mail", "other"] {
        instance.queue(name).await?;
    }
    let ask = async |token: &str, address: &str| {
        let bearer = instance.bearer(token);
        let line = format!("GET {address}");
        instance
            .ask(&line, &["Accept: text/html", &bearer], "")
            .await
    };
    let found = ask("viewer", "/search?id=1").await?;
    assert_eq!(found.status, 200, "{}", found.body);
    for name in ["orders", "mail", "other"] {
        let link = format!("href=\"/queues/{name}/messages/1\"");
        assert!(found.body.contains(&link), "{name}: {}", found.body);
    }
    assert!(found.body.contains("Queues searched: 3"), "{}", found.body);
    let own = ask("foreigner", "/search?id=~MQ").await?;
    led(&own, "/queues/other/messages/1");
    let nowhere = ask("viewer", "/search?id=2").await?;
    assert!(
        nowhere.body.contains("No queue has a message of this id"),
        "{}",
        nowhere.body
    );
    let empty = ask("viewer", "/search").await?;
    assert!(
        empty.body.contains("The whole id of a message"),
        "{}",
        empty.body
    );
    assert_eq!(ask("viewer", "/search?id=~%3F").await?.status, 400);
    assert_eq!(ask("viewer", "/search?id=a%00").await?.status, 400);
    Ok(())
}

#[tokio::test]
async fn go_redirects_to_the_queue_if_it_exists() -> Result<()> {
    let instance = Instance::open().await?;
    instance.queue("a b").await?;
    led(&look(&instance, "/go?queue=a+b").await?, "/queues/~YSBi");
    led(&look(&instance, "/go?queue=").await?, "/");
    for name in ["none", "%7Bx%7D", "..", "%0d%0aX:y", "//evil.com"] {
        led(
            &look(&instance, &format!("/go?queue={name}")).await?,
            "/?did=no_queue",
        );
    }
    let hint = look(&instance, "/?did=no_queue").await?;
    assert!(
        hint.body.contains("There is no queue of this name"),
        "{}",
        hint.body
    );
    Ok(())
}
