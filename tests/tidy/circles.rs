//! Checks import circles between files of the library and the server, the rooms of the node, and
//! the layers of the server.

use std::collections::{BTreeMap, BTreeSet};

use crate::reader::{Imports, is_product};
use crate::{code, files, read};

/// The circles that exist. None may be added, and one that no longer exists must leave the list.
/// "Import circles" in ARCHITECTURE.md says why each stays.
const CIRCLES: &[&str] = &[
    "batch/{batcher,gather}",
    "batch/{call,supervise}",
    "doctor/{audit,queue}",
    "model/schedule/{builder,check,fires,info,mod,options,text}",
    "model/{outcomes,receipt}",
    "partition/{ack_push,closing,elsewhere,mod,remap,roles,schedules,transfer}",
    "{queue/administer,queue/claim,queue/held,queue/mod,queue/push,queue/remote,queue/repartition,queue/schedules,queue/steps,queue/steps/picks}",
    "router/{job,mod,partitions,refresh,registry,repartition,routing,transfer}",
    "server/connect/{credentials,options}",
    "server/{route,servers}",
    "timers/{mod,waiting}",
    "wheel/{drain,expire,mod}",
    "worker/{assemble,builder,handle,handler,settings}",
    "worker/{puller,pullers}",
    "{delivery,delivery/calls,delivery/handle}",
];

/// The rooms of the node. A room may import those before it, and the ids of `node/mod.rs`.
const ROOMS: [&str; 5] = ["runtime", "consumers", "state", "hints", "coordinator"];

/// The layers of the server. A layer may import itself and those before it; files beside the folders
/// may import all.
const LAYERS: [&str; 5] = ["edge", "wire", "work", "routes", "dashboard"];

#[test]
fn no_import_circle_is_added_and_the_list_is_true() {
    let mut found = circles(&Imports::of("src"));
    found.extend(circles(&Imports::of("serve/src")));
    let listed: BTreeSet<_> = CIRCLES.iter().map(|&circle| circle.to_owned()).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "new import circles: {new:#?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "gone; take them off the list: {gone:#?}");
    let page = read("ARCHITECTURE.md");
    let section = page.split("## Import circles\n").nth(1).expect("a section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.filter_map(|row| row.split('`').next());
    let described: BTreeSet<_> = rows.map(str::to_owned).collect();
    assert_eq!(described, listed, "ARCHITECTURE.md, Import circles");
}

#[test]
fn rooms_of_the_node_import_only_rooms_below() {
    let imports = Imports::of("src");
    let room = |file: &str| {
        let room = file.strip_prefix("src/node/")?.split('/').next()?;
        ROOMS.iter().position(|known| *known == room)
    };
    let mut arrows = BTreeSet::new();
    for (from, used) in &imports.0 {
        assert!(
            !from.starts_with("src/node/") || from == "src/node/mod.rs" || room(from).is_some(),
            "{from} is in no room: {ROOMS:?}"
        );
        let above = room(from);
        for to in used.iter().filter(|_| above.is_some()) {
            let below = room(to);
            assert!(below <= above, "{from} imports {to}, of a room above");
            assert!(
                below.is_some() || !to.starts_with("src/node/") || to == "src/node/mod.rs",
                "{from} imports {to}"
            );
            arrows.extend((below < above && below.is_some()).then_some((above, below)));
        }
    }
    assert!(arrows.len() > 4, "the test finds no imports: {arrows:?}");
}

#[test]
fn layers_of_the_server_import_only_layers_below() {
    let imports = Imports::of("serve/src");
    assert!(
        imports.0["serve/src/routes/events.rs"].contains("serve/src/edge/problem/code.rs"),
        "the test does not follow what a module hands on"
    );
    let layer = |file: &str| {
        let folder = file.split('/').nth(2).unwrap_or_default();
        let place = LAYERS.iter().position(|layer| *layer == folder);
        place.unwrap_or(LAYERS.len())
    };
    for (from, used) in &imports.0 {
        for to in used {
            assert!(layer(to) <= layer(from), "{from} imports {to}");
            let is_problem = from.starts_with("serve/src/edge/problem/");
            let may = ["serve/src/edge/problem/", "serve/src/edge/shown.rs"];
            assert!(
                !is_problem || may.iter().any(|path| to.starts_with(path)),
                "{from} imports {to}: a problem knows nobody"
            );
        }
    }
}

#[test]
fn only_the_coordinator_room_has_coordinator_methods() {
    let mut count = 0;
    for (name, text) in files("src", "rs") {
        let has_methods = text.lines().any(|line| line == "impl Coordinator {");
        let may = name.starts_with("src/node/coordinator/");
        assert!(may || !has_methods, "{name} has `impl Coordinator`");
        count += usize::from(has_methods);
    }
    assert!(count > 5, "the test does not find the coordinator");
}

/// Each type of the node that the dispatch rules name must have a row in the table, or be named in
/// a row.
#[test]
fn dispatch_rules_need_at_most_12_concepts() {
    let page = read("ARCHITECTURE.md");
    let section = page
        .split("\n## What you must know to change a dispatch rule\n")
        .nth(1);
    let section = section.and_then(|section| section.split("\n## ").next());
    let section = section.expect("a section");
    let rows = section.lines().filter(|line| line.starts_with("| "));
    assert!((6..=12).contains(&(rows.count() - 1)), "{section}");
    let rules = read("src/node/coordinator/dispatch.rs");
    let imports = rules
        .lines()
        .filter(|line| line.starts_with("use crate::node::"));
    let names = imports.flat_map(|line| line.split(|c: char| !c.is_alphanumeric()));
    for name in names.filter(|name| name.starts_with(char::is_uppercase)) {
        assert!(section.contains(&format!("`{name}`")), "{name} has no row");
    }
}

#[test]
fn state_of_the_node_is_pure() {
    for (name, text) in files("src/node/state", "rs").into_iter().filter(is_product) {
        for word in ["tokio", "Instant::now", ".elapsed()", "async "] {
            assert!(!code(&text).contains(word), "{name} names {word}");
        }
    }
}

/// The circles in the form `folder/{file,file}`.
fn circles(imports: &Imports) -> BTreeSet<String> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            let used = imports.0.get(file).into_iter().flatten();
            open.extend(used.filter(|used| seen.insert((*used).clone())));
        }
        seen
    };
    let reached: BTreeMap<_, _> = imports.0.keys().map(|file| (file, reached(file))).collect();
    let mut found = BTreeSet::new();
    for (file, after) in &reached {
        let circle = after.iter().filter(|other| reached[other].contains(*file));
        let circle: Vec<_> = circle.map(String::as_str).collect();
        if circle.len() > 1 {
            found.insert(named(&circle));
        }
    }
    found
}

fn named(circle: &[&str]) -> String {
    let stem = |file: &&str| {
        file.trim_start_matches("src/")
            .trim_end_matches(".rs")
            .to_owned()
    };
    let stems: Vec<_> = circle.iter().map(stem).collect();
    let folder = |stem: &str| stem.rfind('/').map_or(0, |at| at + 1);
    let first = &stems[0][..folder(&stems[0])];
    let shared = stems.iter().all(|stem| &stem[..folder(stem)] == first);
    let shared = if shared { first } else { "" };
    let names: Vec<_> = stems.iter().map(|stem| &stem[shared.len()..]).collect();
    format!("{shared}{{{}}}", names.join(","))
}
