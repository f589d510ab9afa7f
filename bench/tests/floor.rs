//! Tests that the floor of `dueq-bench serve` really stores, claims and removes messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use dueq_testkit::Server;

fn send(address: &str, line: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    let head = "content-type: application/json\r\nconnection: close";
    let request =
        format!("{line} HTTP/1.1\r\nhost: x\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn floor_stores_claims_and_removes_a_message() -> Result<()> {
    for arguments in [&[][..], &["--shared"]] {
        let redis = Server::start(&[])?;
        let mut floor = Command::new(env!("CARGO_BIN_EXE_dueq-bench"))
            .args(["serve-floor", &redis.url()])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(floor.stdout.take().context("output")?).read_line(&mut line)?;
        let address = line
            .trim()
            .rsplit('/')
            .next()
            .context("an address")?
            .to_owned();
        let path = "/v1/queues/main/messages";
        let put = send(
            &address,
            &format!("PUT {path}/a"),
            r#"{"payload": "x", "delay": "48h"}"#,
        )?;
        assert!(put.starts_with("HTTP/1.1 201"), "{put}");
        let post = send(&address, &format!("POST {path}"), r#"{"payload": "y"}"#)?;
        assert!(post.starts_with("HTTP/1.1 201"), "{post}");
        assert_eq!(redis.command(&["ZCARD", "{main}:due"])?, ":2\r\n");
        assert_eq!(redis.command(&["HGET", "{main}:held", "a"])?, "x");
        redis.command(&["ZADD", "{main}:due", "1", "a"])?;
        let claimed = send(&address, "POST /v1/queues/main/claims", r#"{"max": 9}"#)?;
        assert!(
            claimed.contains(r#"{"handle":"a","payload":"x"}"#),
            "{claimed}"
        );
        let settlements = r#"{"settlements": [{"handle": "a", "action": "ack"}]}"#;
        send(&address, "POST /v1/queues/main/settlements", settlements)?;
        assert_eq!(redis.command(&["HLEN", "{main}:held"])?, ":1\r\n");
        floor.kill()?;
        floor.wait()?;
    }
    Ok(())
}
