//! The ids of nodes. They may end in `#` and the revision of the scripts that the node uses.

/// From this revision on, claims obey a queue's rate, `max_leased` and the expiries of messages.
const WITH_LIMITS: u32 = 2;

/// The id of a node of this release.
pub(crate) fn node_id(unique: &str) -> String {
    format!("{unique}#{WITH_LIMITS}")
}

/// Whether the claims of the node with this id obey the limits.
pub(crate) fn obeys_limits(id: &str) -> bool {
    let revision = id
        .rsplit_once('#')
        .map(|(_, revision)| revision.parse::<u32>());
    matches!(revision, Some(Ok(revision)) if revision >= WITH_LIMITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_this_release_and_newer_ones_obey_limits() {
        for id in [&*node_id("a"), "#2", "a#3", "a#b#10"] {
            assert!(obeys_limits(id), "{id}");
        }
        for id in ["", "a", "a#1", "a#", "a#x", "a#2b", "2"] {
            assert!(!obeys_limits(id), "{id}");
        }
    }
}
