//! The password that a command prints.

use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How long the command may run.
const LIMIT: Duration = Duration::from_secs(10);
/// How long its password, or its failure, is used for further connections: a process opens several
/// at once.
const LASTS: Duration = Duration::from_secs(1);

/// The source of passwords that runs this command. It must be made on a runtime.
pub(crate) fn by_command(
    command: &str,
) -> impl Fn() -> Result<String, String> + Send + Sync + use<> {
    let (command, runtime) = (command.to_owned(), Handle::current());
    let last = Mutex::new(None::<(Instant, Result<String, String>)>);
    move || {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, result)) = &*last
            && at.elapsed() < LASTS
        {
            return result.clone();
        }
        let result = runtime.block_on(run(&command));
        *last = Some((Instant::now(), result.clone()));
        result
    }
}

/// Errors do not quote the command, which may hold a secret, nor what it printed.
async fn run(command: &str) -> Result<String, String> {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    let output = match timeout(LIMIT, shell.output()).await {
        Ok(output) => {
            output.map_err(|error| format!("cannot run the password command: {error}"))?
        }
        Err(_) => return Err(format!("the password command ran longer than {LIMIT:?}")),
    };
    if !output.status.success() {
        return Err(format!("the password command failed: {}", output.status));
    }
    let text = String::from_utf8(output.stdout)
        .map_err(|_| "the password command printed other text than UTF-8".to_owned())?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err("the password command printed nothing".to_owned()),
        password => Ok(password.to_owned()),
    }
}
