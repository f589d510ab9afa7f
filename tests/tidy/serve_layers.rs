//! The layers of `serve/src`: which file may import which.

use std::collections::{BTreeMap, BTreeSet};

use crate::files;

const FOLDER: &str = "serve/src";
/// Each layer may import itself and those before it. Files beside the folders may import all.
const LAYERS: [&str; 5] = ["edge", "wire", "work", "routes", "dashboard"];
/// Files that import each other in a circle. Take out those that do not any more, and add none.
const CIRCLES: [&str; 0] = [];

/// The names of a path: `crate::edge::problem` is `["crate", "edge", "problem"]`.
type Names = Vec<String>;

/// The modules of a crate, and what they import.
#[derive(Default)]
struct Modules {
    /// The file of each module, by its path from the root.
    files: BTreeMap<Names, String>,
    /// Which path a name of a module stands for that it only hands on.
    exports: BTreeMap<(Names, String), Names>,
    /// The module that uses a path from the root.
    uses: Vec<(Names, Names)>,
}

impl Modules {
    fn of(folder: &str) -> Self {
        let mut all = Self::default();
        let files = files(folder, "rs");
        for (name, _) in &files {
            all.files.insert(module(folder, name), name.clone());
        }
        for (name, text) in &files {
            all.read(&module(folder, name), &lean(text));
        }
        all
    }

    fn read(&mut self, here: &Names, code: &str) {
        let mut rest = String::new();
        let mut statement: Option<(bool, String)> = None;
        for line in code.lines() {
            let bare = line.trim_start();
            let words: Vec<_> = bare.splitn(3, ' ').collect();
            let begins = match words.as_slice() {
                ["use", ..] => Some(false),
                [first, "use", ..] if first.starts_with("pub") => Some(true),
                _ => None,
            };
            if statement.is_none()
                && let Some(is_public) = begins
            {
                statement = Some((is_public, String::new()));
            }
            let Some((is_public, text)) = &mut statement else {
                rest.push_str(line);
                rest.push('\n');
                continue;
            };
            text.push_str(bare);
            if !bare.ends_with(';') {
                continue;
            }
            let (_, tree) = text.trim_end_matches(';').split_once("use ").expect("use");
            for (path, name) in expand(tree) {
                if let Some(path) = self.absolute(here, &path) {
                    match is_public {
                        true => drop(self.exports.insert((here.clone(), name), path)),
                        false => self.uses.push((here.clone(), path)),
                    }
                }
            }
            statement = None;
        }
        let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for path in rest.split(|c| !is_of_path(c)) {
            let path: Names = path.split("::").map(str::to_owned).collect();
            if path.len() > 1
                && let Some(path) = self.absolute(here, &path)
            {
                self.uses.push((here.clone(), path));
            }
        }
    }

    /// The path from the root; `None` for another crate.
    fn absolute(&self, here: &Names, path: &[String]) -> Option<Names> {
        let (first, rest) = path.split_first()?;
        let below = |base: &[String], rest: &[String]| Some([base, rest].concat());
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => below(here, rest),
            "super" => below(&here[..here.len().saturating_sub(1)], rest),
            _ => {
                let path = below(here, path)?;
                self.files
                    .contains_key(&path[..=here.len()])
                    .then_some(path)
            }
        }
    }

    /// The file that declares what the path names.
    fn file(&self, path: &[String]) -> &str {
        let mut here = Names::new();
        for (place, name) in path.iter().enumerate() {
            here.push(name.clone());
            if self.files.contains_key(&here) {
                continue;
            }
            here.pop();
            if let Some(path_of) = self.exports.get(&(here.clone(), name.clone())) {
                return self.file(&[path_of, &path[place + 1..]].concat());
            }
            break;
        }
        &self.files[&here]
    }

    /// Which file imports which other ones.
    fn arrows(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let root = self.file(&[]);
        for (module, path) in &self.uses {
            let (from, to) = (self.file(module), self.file(path));
            if to != from && to != root && from != root {
                arrows.entry(from).or_default().insert(to);
            }
        }
        arrows
    }
}

fn module(folder: &str, file: &str) -> Names {
    let path = file.trim_start_matches(folder).trim_start_matches('/');
    let mut names: Names = path
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    names.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    names
}

/// The text without comments, unit tests and `pub(in path)`.
fn lean(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next();
    let lines = text.unwrap_or_default().lines();
    let code: Vec<_> = lines
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let mut parts = code.split("pub(in ");
    let mut lean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once(')').expect("a path in parentheses");
        lean.push_str("pub");
        lean.push_str(rest);
    }
    lean
}

/// The paths of a `use`, each with the name that it gives.
fn expand(tree: &str) -> Vec<(Names, String)> {
    let tree = tree.trim();
    let names = |path: &str| -> Names {
        let names = path.split("::").map(str::trim);
        let names = names.filter(|name| !name.is_empty() && *name != "self");
        names.map(str::to_owned).collect()
    };
    let Some((before, inner)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path = match path.strip_prefix("self::") {
            Some(rest) => [vec!["self".to_owned()], names(rest)].concat(),
            None => names(path),
        };
        let last = path.last().cloned().unwrap_or_default();
        let name = if alias.is_empty() {
            last
        } else {
            alias.to_owned()
        };
        return vec![(path, name)];
    };
    let before = names(before);
    let inner = inner.trim_end().trim_end_matches('}');
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match (c, depth) {
            (',', 0) => parts.push(String::new()),
            _ => parts.last_mut().expect("a part").push(c),
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts
        .flat_map(|part| expand(part))
        .map(|(path, name)| ([before.clone(), path].concat(), name))
        .collect()
}

/// The layer of a file, from 0; those beside the folders are above all.
fn layer(file: &str) -> usize {
    let folder = file.split('/').nth(2).unwrap_or_default();
    let place = LAYERS.iter().position(|layer| *layer == folder);
    place.unwrap_or(LAYERS.len())
}

#[test]
fn layers_of_serve_import_only_layers_below() {
    let modules = Modules::of(FOLDER);
    let arrows = modules.arrows();
    assert!(
        arrows["serve/src/routes/events.rs"].contains("serve/src/edge/problem/code.rs"),
        "the test does not follow what a module hands on"
    );
    for (from, files) in &arrows {
        for to in files {
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
fn files_of_serve_import_each_other_in_no_circle() {
    let modules = Modules::of(FOLDER);
    let mut arrows = modules.arrows();
    // Removes files that import no file that is left, or that no such file imports.
    loop {
        let left = arrows.len();
        let files: BTreeSet<_> = arrows.keys().copied().collect();
        let imported: BTreeSet<_> = arrows.values().flatten().copied().collect();
        arrows.retain(|file, to| imported.contains(file) && !to.is_disjoint(&files));
        if arrows.len() == left {
            break;
        }
    }
    let circles: Vec<_> = arrows.keys().copied().collect();
    assert_eq!(circles, CIRCLES, "{arrows:#?}");
}
