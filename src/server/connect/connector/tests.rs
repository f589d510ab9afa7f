//! Sentinels that disagree, and overlapping calls that ask them.

use tokio::sync::watch;

use super::*;
use crate::server::fake::{Fake, StoppedClock, bulk, usual};

/// What a Sentinel answers, and how many questions it may answer. Further questions wait.
#[derive(Clone, Copy)]
struct Says {
    /// The port of the master; `None` while the Sentinel cannot name one.
    port: Option<u16>,
    epoch: u64,
    answers: u32,
}

struct Sentinel {
    fake: Fake,
    says: watch::Sender<Says>,
    asked: watch::Sender<u32>,
}

impl Sentinel {
    async fn start(port: u16, epoch: u64) -> Self {
        let (says, asked) = (
            watch::Sender::new(Says {
                port: Some(port),
                epoch,
                answers: u32::MAX,
            }),
            watch::Sender::new(0),
        );
        let fake = Fake::start({
            let (says, asked) = (says.clone(), asked.clone());
            move |_, words| {
                let (mut says, asked) = (says.subscribe(), asked.clone());
                async move {
                    if words[0] != "SENTINEL" {
                        return usual(&words);
                    }
                    if words[1] == "MASTER" {
                        return Some(format!(
                            "%1\r\n{}{}",
                            bulk("config-epoch"),
                            bulk(&says.borrow().epoch.to_string())
                        ));
                    }
                    let mut number = 0;
                    asked.send_modify(|asked| {
                        *asked += 1;
                        number = *asked;
                    });
                    let says = *says.wait_for(|says| number <= says.answers).await.ok()?;
                    let place = |port: u16| {
                        format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&port.to_string()))
                    };
                    Some(says.port.map_or("_\r\n".to_owned(), place))
                }
            }
        })
        .await;
        Self { fake, says, asked }
    }

    /// Returns once the Sentinel was asked this many times.
    async fn asked(&self, count: u32) {
        self.asked
            .subscribe()
            .wait_for(|asked| *asked >= count)
            .await
            .expect("a sender");
    }
}

/// Two servers that both report the role master, two Sentinels that name the first one, and a
/// connector that follows it.
async fn following() -> ([Fake; 2], [Sentinel; 2], Arc<Connector>) {
    let masters = [Fake::master().await, Fake::master().await];
    let sentinels = [
        Sentinel::start(masters[0].port, 4).await,
        Sentinel::start(masters[0].port, 4).await,
    ];
    let [well, cut_off] = &sentinels;
    let url = format!(
        "redis+sentinel://127.0.0.1:{},127.0.0.1:{}/orders",
        well.fake.port, cut_off.fake.port
    );
    let connector = Arc::new(Connector::new(&url, &ClientOptions::new()).expect("a URL"));
    assert_eq!(
        connector.server().await.expect("a master").address,
        address(&masters[0])
    );
    (masters, sentinels, connector)
}

fn address(server: &Fake) -> String {
    format!("127.0.0.1:{}", server.port)
}

fn ask(connector: &Arc<Connector>) -> JoinHandle<Result<Arc<Server>, Error>> {
    let connector = Arc::clone(connector);
    tokio::spawn(async move { connector.server().await })
}

/// One Sentinel knows of a failover, and the other is cut off and does not. Of two overlapping
/// questions, only the cut-off one answers the later.
#[tokio::test(start_paused = true)]
async fn a_stale_sentinel_answer_replaces_no_newer_master() {
    let _clock = StoppedClock::new();
    let (masters, [well, cut_off], connector) = following().await;
    well.says.send_replace(Says {
        port: Some(masters[1].port),
        epoch: 5,
        answers: 1,
    });
    let first = ask(&connector);
    well.asked(2).await;
    let second = ask(&connector);
    cut_off.asked(3).await;
    well.says.send_modify(|says| says.answers = 2);
    assert_eq!(
        first.await.expect("no panic").expect("a master").address,
        address(&masters[1])
    );
    assert!(!second.is_finished());
    well.says
        .send_modify(|says| (says.answers, says.port) = (u32::MAX, None));
    assert_eq!(
        second.await.expect("no panic").expect("a master").address,
        address(&masters[1])
    );
    // The newest decision is still known: the Sentinel that is cut off does not bring the old
    // master back.
    assert_eq!(
        connector.server().await.expect("a master").address,
        address(&masters[1])
    );
}
