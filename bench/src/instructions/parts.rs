//! What every call costs before and after its own work, found by ablation: scripts that return
//! after each part of ack.

use anyhow::{Context, Result};

/// Parts of ack, each with the texts of the script before which the part ends: the first that the
/// script has.
const PARTS: [(&str, &[&str]); 4] = [
    ("names of the keys", &["local layout, incarnation"]),
    ("and META", &["local function int"]),
    ("and clock", &["local now, now_up"]),
    (
        "and what is read first",
        &["-- Counts the call", "-- A claim has one lease"],
    ),
];
/// Where the end of a call begins and ends in scripts that have it inline.
const END: [&str; 2] = ["-- The end of a call", "return {header"];

/// Scripts by the name of the last part that each has.
pub(super) fn scripts(ack: &str) -> Result<Vec<(&'static str, String)>> {
    let mut scripts = vec![("an empty script", "return 1".to_owned())];
    for (name, ends) in PARTS {
        let before = ends.iter().find_map(|end| ack.split_once(end));
        let (before, _) = before.with_context(|| format!("ack.lua has none of {ends:?}"))?;
        scripts.push((name, format!("{before}\nreturn 1")));
    }
    let begin = ack.split_once("-- A claim has one lease");
    let begin = begin.context("ack.lua has no leases")?.0;
    let end = match ack.split_once(END[0]) {
        None => "return finish(true)".to_owned(),
        Some((_, rest)) => {
            let (end, _) = rest
                .split_once(END[1])
                .context("ack.lua returns no header")?;
            format!(
                "local changed, quiet, head, length = true, false, old_head, old_length\n\
                 -- {end}\nreturn header"
            )
        }
    };
    scripts.push(("and the end of the call", format!("{begin}\n{end}")));
    Ok(scripts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::systems::root;

    #[test]
    fn the_parts_of_todays_ack_grow() {
        let ack = std::fs::read_to_string(root().join("lua/dist/ack.lua")).expect("ack.lua");
        let scripts = scripts(&ack).expect("every part has its end");
        assert_eq!(scripts.len(), PARTS.len() + 2);
        assert!(scripts.is_sorted_by_key(|(_, script)| script.len()));
    }
}
