//! The scripts as a Redis Functions library: its text, its version on a server, loading it.

use std::fmt::Write;

use redis::Value;

use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::verbs::Verb;
use crate::server::failure;
use crate::server::lane::Lane;
use crate::server::patience::patiently;

/// The version of the library. It grows with every change of a script, and a server keeps the
/// newest library that it was given.
pub(crate) const VERSION: u64 = 28;

/// The library's text: each script in a function `dueq_VERB` with the script's own flags, and
/// `dueq_version`.
pub(crate) fn code() -> String {
    let mut code = String::from("#!lua name=dueq\n");
    for verb in Verb::ALL {
        let (shebang, body) = verb.code().split_once('\n').unwrap_or_default();
        let flags = match shebang.split_once("flags=") {
            Some((_, flags)) => flags
                .split(',')
                .map(|flag| format!("'{flag}'"))
                .collect::<Vec<_>>()
                .join(", "),
            None => String::new(),
        };
        register(
            &mut code,
            verb.name(),
            &flags,
            &format!("KEYS, ARGV)\n{body}"),
        );
    }
    register(
        &mut code,
        "version",
        "'no-writes'",
        &format!(")\n  return {VERSION}\n"),
    );
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
    /// Reads the version of the library on the server, if it has one.
    pub(crate) async fn functions_version(&self) -> Result<Option<u64>, Error> {
        let call = redis::cmd("FCALL").arg("dueq_version").arg(0).to_owned();
        match patiently(|| self.query(&call)).await {
            Ok(Value::Int(version)) => Ok(u64::try_from(version).ok()),
            Ok(other) => Err(Error::new(
                ErrorKind::Server,
                Applied::No,
                format!("dueq_version answered {other:?}"),
            )),
            Err(error) if failure::is_unknown_function(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Loads this crate's library, replacing any of the same name.
    pub(crate) async fn load_functions(&self) -> Result<(), Error> {
        let mut load = redis::cmd("FUNCTION");
        load.arg("LOAD").arg("REPLACE").arg(code());
        patiently(|| self.command(&load)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of the library with the version `VERSION`. A test compares it.
    const HASH: u64 = 0xfccf49d136b2fa98;

    /// The hash FNV-1a.
    fn hash(text: &str) -> u64 {
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    #[test]
    fn a_changed_script_needs_a_new_version() {
        // The version is taken out of the text, so that raising VERSION alone does not change the
        // hash.
        let text = code().replace(&format!("return {VERSION}\n"), "return VERSION\n");
        let found = hash(&text);
        assert!(
            found == HASH,
            "a script changed since VERSION became {VERSION}: raise VERSION if the last commit has it, and set HASH to {found:#018x}"
        );
    }
}
