//! Process groups: what dueq starts, it ends, with all that was started from there.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How long a group may take to end by itself once it was asked to.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long the kernel may take to clear away what was killed. Zombies that nobody reaps are not waited for.
const CLEARING: Duration = Duration::from_secs(1);

/// Ends every process of a group: asks by SIGTERM, and kills what is left after `patience`.
pub(crate) async fn end(group: Pid, patience: Duration) {
    if kill_process_group(group, Signal::TERM).is_err() || is_gone_within(group, patience).await {
        return;
    }
    let _ = kill_process_group(group, Signal::KILL);
    is_gone_within(group, CLEARING).await;
}

/// The end of a group has no event that an unrelated process could await: this looks, ever less often.
async fn is_gone_within(group: Pid, limit: Duration) -> bool {
    let (start, mut pause) = (Instant::now(), Duration::from_millis(1));
    while test_kill_process_group(group).is_ok() {
        if start.elapsed() >= limit {
            return false;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    true
}

/// A process beside this one that ends the groups that are left if this one is killed with no chance to do it itself.
///
/// It reads the groups' numbers from a pipe, whose end tells it that this process is gone. It is a shell in a group of its
/// own, so that Ctrl-C in a terminal does not reach it.
pub(crate) struct Guard {
    shell: Mutex<Child>,
}

const GUARD: &str = r#"
trap '' HUP INT TERM
groups=
while read -r sign group; do
    rest=
    for known in $groups; do [ "$known" = "$group" ] || rest="$rest $known"; done
    case $sign in +) groups="$rest $group" ;; *) groups=$rest ;; esac
done
[ -n "$groups" ] || exit 0
for group in $groups; do kill -s TERM -- "-$group" 2>/dev/null; done
sleep 2
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
"#;

impl Guard {
    pub(crate) fn start() -> std::io::Result<Self> {
        let shell = Command::new("sh")
            .args(["-c", GUARD, "dueq-guard"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self {
            shell: Mutex::new(shell),
        })
    }

    pub(crate) fn add(&self, group: Pid) {
        self.say('+', group);
    }

    pub(crate) fn remove(&self, group: Pid) {
        self.say('-', group);
    }

    /// A guard that somebody has killed is no reason to stop.
    fn say(&self, sign: char, group: Pid) {
        let mut shell = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = &mut shell.stdin {
            let _ = pipe.write_all(format!("{sign} {}\n", group.as_raw_nonzero()).as_bytes());
        }
    }
}

impl Drop for Guard {
    /// The end of its input ends it.
    fn drop(&mut self) {
        let shell = self.shell.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(shell.stdin.take());
        let _ = shell.wait();
    }
}
