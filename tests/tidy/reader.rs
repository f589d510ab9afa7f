//! Reads imports: which file names what another file declares. All tests about imports use it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{code, files};

/// The names in a path: `crate::edge::problem` is `["crate", "edge", "problem"]`.
type Names = Vec<String>;

/// The files of a crate, each with the files that it imports: by `use`, by `pub use`, and by paths
/// in its code. A name that a file only re-exports counts for the file that declares it. The root
/// of the crate does not count.
pub(crate) struct Imports(pub(crate) BTreeMap<String, BTreeSet<String>>);

impl Imports {
    pub(crate) fn of(folder: &str) -> Self {
        let sources: Vec<_> = files(folder, "rs").into_iter().filter(is_product).collect();
        let mut modules = Modules::default();
        for (name, _) in &sources {
            modules.files.insert(module_of(name, folder), name.clone());
        }
        let uses = sources.iter().map(|(name, text)| {
            let module = module_of(name, folder);
            let uses = uses(&code(text)).into_iter();
            let uses: Vec<_> = uses
                .filter_map(|used| Some((used.exported, modules.absolute(&module, used.path)?)))
                .collect();
            (name, module, uses)
        });
        let uses: Vec<_> = uses.collect();
        for (_, module, uses) in &uses {
            for (exported, path) in uses {
                if let Some(exported) = exported {
                    let key = (module.clone(), exported.clone());
                    modules.exports.insert(key, path.clone());
                }
            }
        }
        let root = modules.files.get(&Names::new()).cloned();
        let mut imports = BTreeMap::new();
        for (name, _, uses) in &uses {
            let used: &mut BTreeSet<_> = imports.entry((*name).clone()).or_default();
            if Some(*name) != root.as_ref() {
                let files = uses.iter().filter_map(|(_, path)| modules.file(path, 0));
                used.extend(files.filter(|file| file != *name && Some(file) != root.as_ref()));
            }
        }
        Self(imports)
    }
}

/// Whether a file is part of the product, not a unit test.
pub(crate) fn is_product((name, _): &(String, String)) -> bool {
    !name.contains("/tests/") && !name.ends_with("/tests.rs") && !name.ends_with("_tests.rs")
}

#[derive(Default)]
struct Modules {
    /// The file of each module, by the module's path from the root.
    files: BTreeMap<Names, String>,
    /// For each name that a module re-exports, the path that the name stands for.
    exports: BTreeMap<(Names, String), Names>,
}

impl Modules {
    /// Turns a path into one from the root; `None` for another crate.
    fn absolute(&self, module: &[String], path: Names) -> Option<Names> {
        let mut here = module.to_vec();
        let mut rest = &path[..];
        match rest.first()?.as_str() {
            "crate" => here.clear(),
            "self" => {}
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    here.pop();
                    rest = &rest[1..];
                }
                return Some([&here, rest].concat());
            }
            child => {
                here.push(child.to_owned());
                self.files.get(&here)?;
            }
        }
        Some([&here, &rest[1..]].concat())
    }

    /// The file that declares the item which a path from the root names.
    fn file(&self, path: &[String], depth: usize) -> Option<String> {
        let is_module = |length: &usize| self.files.contains_key(&path[..*length]);
        let length = (0..=path.len()).take_while(is_module).last()?;
        let (module, rest) = path.split_at(length);
        if let Some((item, more)) = rest.split_first()
            && let Some(handed_on) = self.exports.get(&(module.to_vec(), item.clone()))
            && depth < 4
        {
            return self.file(&[handed_on, more].concat(), depth + 1);
        }
        self.files.get(module).cloned()
    }
}

/// The path of a file's module; empty for the root.
fn module_of(name: &str, folder: &str) -> Names {
    let name = name.trim_start_matches(folder).trim_end_matches(".rs");
    let parts = name.split('/').filter(|part| !part.is_empty());
    let mut parts: Vec<_> = parts.map(str::to_owned).collect();
    parts.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    parts
}

/// A path that code names, and the name under which the code re-exports it, if it does.
struct Used {
    path: Names,
    exported: Option<String>,
}

fn uses(code: &str) -> Vec<Used> {
    let (mut found, mut rest) = (Vec::new(), String::new());
    // The path in a visibility such as `pub(in path)` is not an import.
    let code: String = code
        .split("pub(in ")
        .map(|part| match part.split_once(')') {
            Some((path, rest)) if path.starts_with("crate::") => format!("pub{rest}"),
            _ => part.to_owned(),
        })
        .collect();
    for statement in code.split_inclusive(';') {
        let at = statement.rfind("use ").filter(|at| {
            let line = statement[..*at].rsplit('\n').next().unwrap_or_default();
            line.trim().is_empty() || line.trim().starts_with("pub")
        });
        let Some(at) = at else {
            rest.push_str(statement);
            continue;
        };
        let before = statement[..at].rsplit_once('\n');
        let (before, line) = before.unwrap_or(("", &statement[..at]));
        rest.push_str(before);
        let is_public = line.trim().starts_with("pub");
        let tree = statement[at + 4..].trim_end_matches(';');
        found.extend(expanded(tree).into_iter().map(|(path, name)| Used {
            path,
            exported: is_public.then_some(name),
        }));
    }
    let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for text in rest
        .split(|c| !is_of_path(c))
        .filter(|text| text.contains("::"))
    {
        // A path after `>` or `)` is a continuation, not a path of its own.
        if !text.starts_with("::") {
            let path = text.split("::").filter(|name| !name.is_empty());
            found.push(Used {
                path: path.map(str::to_owned).collect(),
                exported: None,
            });
        }
    }
    found
}

/// The paths in a tree of `use`, each with the name that it introduces.
fn expanded(tree: &str) -> Vec<(Names, String)> {
    let names = |path: &str| -> Names {
        let names = path.split("::").map(str::trim);
        let names = names.filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    };
    let Some((before, list)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path = names(path);
        let last = path.last().cloned().unwrap_or_default();
        let name = Some(alias.trim()).filter(|alias| !alias.is_empty());
        return vec![(path, name.map_or(last, str::to_owned))];
    };
    let before = names(before);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match (c, depth) {
            (_, ..0) => break,
            (',', 0) => parts.push(String::new()),
            _ => parts.last_mut().expect("a part").push(c),
        }
    }
    let parts = parts.iter().map(|part| part.trim());
    parts
        .filter(|part| !part.is_empty())
        .flat_map(expanded)
        .map(|(path, name)| ([&before[..], &path].concat(), name))
        .collect()
}
