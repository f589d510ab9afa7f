//! The programs in other languages of a run: a worker and a producer for each.

use anyhow::{Context, Result};

use super::Options;
use crate::history::Role;

/// The handlers of a worker, which its program chooses.
const HANDLERS: &str = "32";

/// The role, the name and the arguments of each process. A producer pushes so many messages per
/// second.
pub(crate) fn members(options: &Options, rate: u32) -> Result<Vec<(Role, String, Vec<String>)>> {
    let Some(list) = &options.programs else {
        return Ok(Vec::new());
    };
    let list = std::fs::read_to_string(list).with_context(|| list.display().to_string())?;
    let mut members = Vec::new();
    for (language, command) in list.lines().filter_map(|line| line.split_once(' ')) {
        for (role, kind) in [(Role::Worker, "work"), (Role::Producer, "push")] {
            let mut arguments = options.role_arguments("program");
            arguments.extend(["--command".into(), command.to_owned()]);
            arguments.extend(match role {
                Role::Producer => vec!["--pushes".into(), "--rate".into(), rate.to_string()],
                _ => vec!["--concurrency".into(), HANDLERS.to_owned()],
            });
            members.push((role, format!("{language}-{kind}"), arguments));
        }
    }
    Ok(members)
}
