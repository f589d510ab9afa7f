//! Adds a token to the tokens file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::edge::Error;
use crate::edge::auth::tokens::TokensFile;
use crate::edge::auth::tokens::token::{generate, hash};
use crate::edge::auth::{NamePattern, Role};

/// Adds a token of this name to the file, and returns it: the file keeps only its SHA-256. Creates
/// the file, with a signing key and readable by its owner only, if there is none. Servers that use
/// the file know the token within a second.
///
/// # Errors
/// [`Error::Config`] if the name is in use or the file cannot be read, [`Error::Io`] if it cannot
/// be written. Then the file is unchanged.
pub fn add_token(
    path: &Path,
    name: &str,
    roles: &[Role],
    queues: &[NamePattern],
) -> Result<String, Error> {
    let unwritten = |error: io::Error| Error::io(format!("cannot write {}", path.display()), error);
    // The file itself, not a link to it, is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Two that add a token at the same time must not lose one.
    let lock = File::open(folder).map_err(unwritten)?;
    lock.lock().map_err(unwritten)?;
    let random = |error: getrandom::Error| Error::Config(format!("no random bytes: {error}"));
    let (old, mode) = match fs::read_to_string(path) {
        Ok(text) => (
            text,
            fs::metadata(path).map_err(unwritten)?.permissions().mode() & 0o777,
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut key = [0; 32];
            getrandom::fill(&mut key).map_err(random)?;
            let key = STANDARD.encode(key);
            let text = format!(
                "# The tokens of dueq serve. To end a token's access, delete its table.\n\
                 # The key signs sessions and claims; all instances need the same.\n\
                 signing_key = \"{key}\"\n"
            );
            (text, 0o600)
        }
        Err(error) => return Err(Error::io(format!("cannot read {}", path.display()), error)),
    };
    let token = generate().map_err(random)?;
    let text = format!(
        "{}\n{}",
        with_line_end(&old),
        entry(name, roles, queues, &token)
    );
    // A wrong name, a name in use, or a file that was wrong before.
    TokensFile::parse(&text)
        .map_err(|error| Error::Config(format!("{}: {error}", path.display())))?;
    replace(path, &text, mode).map_err(unwritten)?;
    Ok(token)
}

fn with_line_end(text: &str) -> String {
    match text.chars().last() {
        None | Some('\n') => text.to_owned(),
        Some(_) => format!("{text}\n"),
    }
}

/// The table of a token.
fn entry(name: &str, roles: &[Role], queues: &[NamePattern], token: &str) -> String {
    let list = |words: Vec<String>| {
        let words: Vec<_> = words.iter().map(|word| toml_string(word)).collect();
        format!("[{}]", words.join(", "))
    };
    let hash: String = hash(token.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!(
        "[[token]]\nname = {}\nroles = {}\nqueues = {}\nsha256 = \"{hash}\"\n",
        toml_string(name),
        list(roles.iter().map(Role::to_string).collect()),
        list(queues.iter().map(NamePattern::to_string).collect()),
    )
}

fn toml_string(text: &str) -> String {
    // JSON escapes as TOML does.
    serde_json::Value::from(text).to_string()
}

/// Replaces the file at once: a reader sees the old or the new one.
fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    // One that a crash left has no lock any more.
    match fs::remove_file(beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(beside)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(beside, path)
}
