//! Process groups: dueq ends every process that it started, with all their descendants.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How long a process group may take to end after SIGTERM.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long the kernel may take to remove killed processes. The wait is bounded because a parent
/// may never reap its zombie.
const CLEARING: Duration = Duration::from_secs(1);

/// Ends every process of a group by SIGTERM, and after `patience` by SIGKILL.
pub(crate) async fn end(group: Pid, patience: Duration) {
    if kill_process_group(group, Signal::TERM).is_err() || is_gone_within(group, patience).await {
        return;
    }
    let _ = kill_process_group(group, Signal::KILL);
    is_gone_within(group, CLEARING).await;
}

/// Whether the group ends in time. Polls with growing pauses: the kernel notifies only parents.
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

/// A helper process that ends the remaining process groups if this process is killed by SIGKILL.
///
/// It reads the numbers of groups from a pipe; the end of the pipe means that this process is gone.
/// The helper is a shell in its own group, so that Ctrl-C in a terminal does not reach it.
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

    /// Tells the guard about a group. Ignores errors: if the guard was killed, the work goes on.
    fn say(&self, sign: char, group: Pid) {
        let mut shell = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = &mut shell.stdin {
            let _ = pipe.write_all(format!("{sign} {}\n", group.as_raw_nonzero()).as_bytes());
        }
    }
}

impl Drop for Guard {
    /// Closes the guard's input, which makes the guard end.
    fn drop(&mut self) {
        let shell = self.shell.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(shell.stdin.take());
        let _ = shell.wait();
    }
}
