use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// For each node, the partitions that it attends and its ranks in them.
type Pairs = BTreeMap<String, Vec<(Tag, usize)>>;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("0193a5f0{n:024x}")).collect()
}

fn tags(count: u32) -> Vec<Tag> {
    let numbered = (1..count).map(|n| Tag::Numbered(n * 37));
    std::iter::once(Tag::Home).chain(numbered).collect()
}

fn pairs(names: &[String], tags: &[Tag]) -> Pairs {
    let roster = Roster::of(names.iter().map(String::as_str));
    let attended = |name: &String| {
        let mut ranking = Ranking::new("orders", tags, name);
        ranking.update(&roster);
        (name.clone(), ranking.ranks().collect())
    };
    names.iter().map(attended).collect()
}

/// The number of attended pairs, and the fewest and the most nodes of a partition.
fn counts(pairs: &Pairs, tags: &[Tag]) -> (usize, usize, usize) {
    let mut of_tag: BTreeMap<_, usize> = tags.iter().map(|tag| (*tag, 0)).collect();
    for (tag, _) in pairs.values().flatten() {
        *of_tag.get_mut(tag).expect("a known tag") += 1;
    }
    let (fewest, most) = (of_tag.values().min(), of_tag.values().max());
    (
        of_tag.values().sum(),
        *fewest.expect("tags"),
        *most.expect("tags"),
    )
}

#[test]
fn each_partition_has_three_nodes_of_distinct_ranks() {
    for (nodes, partitions) in [(1, 12), (2, 12), (3, 5), (10, 64), (100, 12)] {
        let (names, tags) = (names(nodes), tags(partitions));
        let pairs = pairs(&names, &tags);
        for tag in &tags {
            let ranks: Vec<_> = pairs
                .values()
                .flatten()
                .filter(|(of, _)| of == tag)
                .collect();
            let distinct: BTreeSet<_> = ranks.iter().map(|(_, rank)| *rank).collect();
            assert_eq!(distinct.len(), ranks.len(), "ranks in {tag}");
            assert!((0..nodes.min(3)).all(|rank| distinct.contains(&rank)));
        }
        let fewest = PARTITIONS_OF_NODE.min(tags.len());
        assert!(pairs.values().all(|attended| attended.len() >= fewest));
    }
}

#[test]
fn attended_pairs_are_bounded_by_three_and_four() {
    for (nodes, partitions, all, at_most) in [
        (1, 64, 64, 1),
        (10, 64, 196, 5),
        (100, 12, 400, 50),
        (100, 64, 430, 15),
        (200, 128, 830, 20),
    ] {
        let tags = tags(partitions);
        let (sum, fewest, most) = counts(&pairs(&names(nodes), &tags), &tags);
        assert!(
            sum <= all && fewest >= nodes.min(3) && most <= at_most,
            "{nodes} nodes, {partitions} partitions: {sum} pairs, {fewest} to {most} a partition"
        );
    }
}

#[test]
fn a_leaving_node_changes_only_its_own_partitions() {
    let (names, tags) = (names(20), tags(64));
    let before = pairs(&names, &tags);
    let gone = &names[7];
    let rest: Vec<_> = names.iter().filter(|name| *name != gone).cloned().collect();
    let after = pairs(&rest, &tags);
    let of_gone: BTreeSet<_> = before[gone].iter().map(|(tag, _)| *tag).collect();
    for name in &rest {
        let tags_of =
            |pairs: &Pairs| -> BTreeSet<_> { pairs[name].iter().map(|(tag, _)| *tag).collect() };
        let (old, new) = (tags_of(&before), tags_of(&after));
        assert!(old.is_subset(&new), "{name} leaves nothing");
        assert!(
            new.difference(&old).all(|tag| of_gone.contains(tag)),
            "{name} takes over partitions of the node that left"
        );
    }
}

#[test]
fn an_updated_ranking_equals_a_new_one() {
    let (names, tags) = (names(30), tags(40));
    let own = &names[0];
    let mut ranking = Ranking::new("orders", &tags, own);
    for (from, to) in [(0, 10), (5, 30), (1, 3), (0, 1), (0, 30)] {
        let roster = Roster::of(names[from..to].iter().map(String::as_str));
        ranking.update(&roster);
        assert!(!ranking.update(&roster), "the same roster again");
        let mut fresh = Ranking::new("orders", &tags, own);
        fresh.update(&roster);
        assert!(ranking.ranks().eq(fresh.ranks()), "nodes {from} to {to}");
    }
}

#[test]
fn homes_of_queues_have_different_first_nodes() {
    let names = names(10);
    let roster = Roster::of(names.iter().map(String::as_str));
    let first = |queue: usize| {
        let is_first = |name: &&String| {
            let mut ranking = Ranking::new(&format!("queue{queue}"), &tags(12), name);
            ranking.update(&roster);
            ranking.rank(Tag::Home) == Some(0)
        };
        names.iter().find(is_first).expect("a first node")
    };
    let firsts: BTreeSet<_> = (0..50).map(first).collect();
    assert!(firsts.len() >= 8, "{} of 10 nodes", firsts.len());
}

#[test]
fn nodes_of_late_ranks_beat_every_2_s_unless_they_lead() {
    for (rank, is_leader, ms) in [
        (None, false, 900),
        (Some(0), false, 900),
        (Some(1), false, 900),
        (Some(2), false, 2_000),
        (Some(2), true, 900),
    ] {
        let interval = beat_interval(rank, is_leader);
        assert_eq!(interval, Duration::from_millis(ms), "{rank:?}");
    }
}

#[test]
fn nodes_watch_large_rosters_less_often() {
    let interval = |nodes, part| watch_interval(nodes, part).as_millis();
    assert_eq!((interval(199, 0.0), interval(199, 1.0)), (875, 925));
    assert_eq!((interval(200, 0.0), interval(200, 1.0)), (1_475, 1_525));
}
