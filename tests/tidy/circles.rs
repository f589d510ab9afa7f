//! Import circles between files of the library, and the rooms of the node.

use std::collections::{BTreeMap, BTreeSet};

use crate::{code, files, read};

/// The circles that there are: none may be added, and one that has gone leaves the list.
/// "Import circles" in ARCHITECTURE.md says why each stays.
const CIRCLES: &[&str] = &[
    "batch/{batcher,gather}",
    "batch/{call,supervise}",
    "doctor/{audit,queue}",
    "model/schedule/{builder,check,fires,info,mod,options,text}",
    "model/{outcomes,receipt}",
    "partition/{closing,mod,remap,roles,schedules}",
    "queue/{administer,claim,held,mod,push,remote,schedules,steps}",
    "router/{mod,partitions,refresh,registry,repartition,routing}",
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

#[test]
fn no_file_circle_is_added_and_the_list_is_true() {
    let found = circles(&Imports::of("src"));
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
fn only_the_coordinators_room_has_its_methods() {
    let mut count = 0;
    for (name, text) in files("src", "rs") {
        let has_methods = text.lines().any(|line| line == "impl Coordinator {");
        let may = name.starts_with("src/node/coordinator/");
        assert!(may || !has_methods, "{name} has `impl Coordinator`");
        count += usize::from(has_methods);
    }
    assert!(count > 5, "the test does not find the coordinator");
}

/// Each type of the node that the rules name has a row, or stands in one.
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

fn is_product((name, _): &(String, String)) -> bool {
    !name.contains("/tests/") && !name.ends_with("/tests.rs")
}

/// The imports of each file.
struct Imports(BTreeMap<String, BTreeSet<String>>);

impl Imports {
    /// Those in a folder of sources: `use`, and paths that begin with `crate` or `super`. A name that
    /// another file hands on counts for the file that has it. The root of the crate does not count.
    fn of(folder: &str) -> Self {
        let sources: Vec<_> = files(folder, "rs").into_iter().filter(is_product).collect();
        let mut modules = BTreeMap::new();
        let mut handed_on = BTreeMap::new();
        for (name, text) in &sources {
            let module = module_of(name, folder);
            modules.insert(module.clone(), name.clone());
            for (is_public, path) in uses(&code(text)) {
                if let Some(item) = path.last().filter(|_| is_public) {
                    handed_on.insert((module.clone(), item.clone()), path.clone());
                }
            }
        }
        let mut imports = BTreeMap::new();
        for (name, text) in &sources {
            let module = module_of(name, folder);
            let used: &mut BTreeSet<_> = imports.entry(name.clone()).or_default();
            if module.is_empty() {
                continue;
            }
            for (_, path) in uses(&code(text)) {
                let file = file_of(&path, &module, &modules, &handed_on, 0);
                used.extend(file.filter(|file| file != name));
            }
        }
        Self(imports)
    }
}

/// The path of a file's module; empty for the root.
fn module_of(name: &str, folder: &str) -> Vec<String> {
    let name = name.trim_start_matches(folder).trim_end_matches(".rs");
    let parts = name.split('/').filter(|part| !part.is_empty());
    let mut parts: Vec<_> = parts.map(str::to_owned).collect();
    parts.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    parts
}

type Path = Vec<String>;

/// The file that has the item of this path, as it stands in a module.
fn file_of(
    path: &Path,
    module: &Path,
    modules: &BTreeMap<Path, String>,
    handed_on: &BTreeMap<(Path, String), Path>,
    depth: usize,
) -> Option<String> {
    let mut at = module.clone();
    let mut rest = &path[..];
    match rest.first()?.as_str() {
        "crate" => {
            at.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while let Some(("super", more)) = rest.split_first().map(|(a, b)| (a.as_str(), b)) {
                at.pop();
                rest = more;
            }
        }
        first => {
            at.push(first.to_owned());
            modules.get(&at)?;
            rest = &rest[1..];
        }
    }
    while let Some(next) = rest.first() {
        at.push(next.clone());
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
        rest = &rest[1..];
    }
    if let Some(item) = rest.first()
        && let Some(path) = handed_on.get(&(at.clone(), item.clone()))
        && depth < 4
    {
        return file_of(path, &at, modules, handed_on, depth + 1);
    }
    modules.get(&at).filter(|_| !at.is_empty()).cloned()
}

/// The paths that code names, and whether each is handed on.
fn uses(code: &str) -> Vec<(bool, Path)> {
    let mut found = Vec::new();
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        let at = statement.rfind("use ").filter(|at| {
            let line = statement[..*at].rsplit('\n').next().unwrap_or_default();
            line.trim().is_empty() || line.trim().starts_with("pub")
        });
        let Some(at) = at else {
            rest.push_str(statement);
            continue;
        };
        rest.push_str(&statement[..at]);
        let is_public = statement[..at].lines().next_back();
        let is_public = is_public.is_some_and(|line| line.trim().starts_with("pub"));
        let tree = statement[at + 4..].trim_end_matches(';');
        found.extend(expanded(tree).into_iter().map(|path| (is_public, path)));
    }
    for root in ["crate::", "super::"] {
        for (at, _) in rest.match_indices(root) {
            if rest[..at].ends_with("::") {
                continue;
            }
            let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let end = rest[at..].find(|c| !is_path(c)).unwrap_or(rest.len() - at);
            let path = rest[at..at + end]
                .split("::")
                .filter(|part| !part.is_empty());
            found.push((false, path.map(str::to_owned).collect()));
        }
    }
    found
}

/// The paths of a tree of `use`.
fn expanded(tree: &str) -> Vec<Path> {
    let Some((before, list)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default();
        return vec![
            name.split("::")
                .map(|part| part.trim().to_owned())
                .collect(),
        ];
    };
    let prefix: Path = before
        .split("::")
        .map(|part| part.trim().to_owned())
        .collect();
    let prefix = &prefix[..prefix.len() - 1];
    let (mut depth, mut part, mut paths) = (0, String::new(), Vec::new());
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth < 0 || (depth == 0 && c == ',') {
            if !part.trim().is_empty() {
                for path in expanded(part.trim()) {
                    paths.push([prefix, &path[..]].concat());
                }
            }
            part.clear();
            if depth < 0 {
                break;
            }
        } else {
            part.push(c);
        }
    }
    paths
}

/// The circles, as `folder/{file,file}`.
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
