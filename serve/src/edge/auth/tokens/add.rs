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

/// Adds a token with this name to the file, and returns the token: the file has only its SHA-256.
/// If there is no file, creates one with a signing key, readable only by its owner. Servers that
/// use the file accept the token within a second.
///
/// # Errors
/// [`Error::Config`] if the name is in use or the file cannot be read; [`Error::Io`] if the file
/// cannot be written. In both cases the file is unchanged.
pub fn add_token(
    path: &Path,
    name: &str,
    roles: &[Role],
    queues: &[NamePattern],
) -> Result<String, Error> {
    let unwritten = |error: io::Error| Error::io(format!("cannot write {}", path.display()), error);
    // If the path is a link, its target is replaced, not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // The lock: of two processes that add a token at the same time, neither may lose its token.
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
    // The check fails if the name is wrong or in use, or if the file was wrong before.
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

/// The TOML table of a token.
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
    // JSON escapes a string in a way that TOML reads.
    serde_json::Value::from(text).to_string()
}

/// Replaces the file atomically: a reader sees the old or the new file.
fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    // A crash may have left the temporary file; nobody holds its lock.
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
