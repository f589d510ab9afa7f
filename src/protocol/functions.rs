//! The scripts as a Redis Functions library: making its text, asking for it, loading it.

use std::fmt::Write;

use redis::Value;

use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::lane::{Lane, Patience, Repeat};
use crate::protocol::scripts::Verb;

/// Grows with every change of a script. A server keeps the newest library that it was given.
pub(crate) const VERSION: u64 = 1;

/// The library's text: each script in a function `dueq_VERB` with the script's own flags, and `dueq_version`.
pub(crate) fn code() -> String {
    let mut code = String::from("#!lua name=dueq\n");
    for verb in Verb::ALL {
        let (shebang, body) = verb.code().split_once('\n').unwrap_or_default();
        let flags = match shebang.split_once("flags=") {
            Some((_, flags)) => flags.split(',').map(|flag| format!("'{flag}'")).collect::<Vec<_>>().join(", "),
            None => String::new(),
        };
        register(&mut code, verb.name(), &flags, &format!("KEYS, ARGV)\n{body}"));
    }
    register(&mut code, "version", "'no-writes'", &format!(")\n  return {VERSION}\n"));
    code
}

fn register(code: &mut String, name: &str, flags: &str, function: &str) {
    // Writing to a string cannot fail.
    let _ = write!(
        code,
        "\nredis.register_function{{function_name = 'dueq_{name}', flags = {{{flags}}}, callback = function({function}end}}\n"
    );
}

impl Lane {
    /// The version of the library on the server, if there is one.
    pub(crate) async fn functions_version(&self) -> Result<Option<u64>, Error> {
        match self.command_patiently(redis::cmd("FCALL").arg("dueq_version").arg(0)).await {
            Ok(Value::Int(version)) => Ok(u64::try_from(version).ok()),
            Ok(other) => Err(Error::new(ErrorKind::Server, Applied::No, format!("dueq_version answered {other:?}"))),
            Err(error) if error.to_string().contains("Function not found") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts this crate's library in the place of whatever is there under its name.
    pub(crate) async fn load_functions(&self) -> Result<(), Error> {
        let mut load = redis::cmd("FUNCTION");
        load.arg("LOAD").arg("REPLACE").arg(code());
        self.command_patiently(&load).await.map(drop)
    }

    /// A command that does no harm twice, repeated while the server cannot be reached.
    async fn command_patiently(&self, command: &redis::Cmd) -> Result<Value, Error> {
        let mut patience = Patience::new();
        loop {
            match self.command(command).await {
                Err(error) if patience.allows(&error, Repeat::Harmless) => patience.pause().await,
                result => return result,
            }
        }
    }
}
