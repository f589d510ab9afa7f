//! Checks that docs/guide/settings.md names each variable, option, setter and constant, with its
//! default.

use std::collections::BTreeMap;

use crate::{files, read};

fn page() -> String {
    read("docs/guide/settings.md")
}

#[test]
fn settings_page_names_each_variable_of_the_program() {
    let (page, mut count) = (page(), 0);
    for (name, text) in files("cli/src", "rs") {
        for start in [" env = \"", "env::var(\"", "env::var_os(\""] {
            for rest in text.split(start).skip(1) {
                let variable = rest.split('"').next().unwrap_or_default();
                assert!(
                    page.contains(&format!("`{variable}`")),
                    "docs/guide/settings.md does not name the variable {variable} of {name}"
                );
                count += 1;
            }
        }
    }
    assert!(count > 15, "{count} variables: the test misses variables");
}

/// Writes a number with commas between its thousands. Other texts stay as they are.
fn grouped(text: &str) -> String {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.to_owned();
    }
    let digits = text.chars().enumerate();
    digits.fold(String::new(), |mut grouped, (index, digit)| {
        if index > 0 && (text.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
        grouped
    })
}

/// The name of the option at the start of a text, such as `--lease` for `--lease TIME`.
fn option(text: &str) -> Option<&str> {
    let name = text.strip_prefix("--")?;
    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '-';
    Some(name.split(is_end).next().unwrap_or_default())
}

/// The options of a command as its help prints them, each with the text of its default.
fn options(help: &str, command: &str) -> Vec<(String, Option<String>)> {
    let (_, rest) = help
        .split_once(&format!("$ dueq {command} --help\n"))
        .unwrap_or_else(|| panic!("no help of {command}"));
    let text = rest.split("\n$ dueq ").next().unwrap_or_default();
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("      ").and_then(option) {
            found.push((name.to_owned(), None));
        }
        let default = line.split_once("[default: ").map(|(_, rest)| rest);
        let default = default.and_then(|rest| rest.split(']').next());
        if let (Some(default), Some(last)) = (default, found.last_mut()) {
            last.1 = Some(default.to_owned());
        }
    }
    found
}

#[test]
fn settings_page_has_each_option_with_its_default() {
    let (page, help, mut count) = (page(), read("cli/tests/help.txt"), 0);
    let mut rows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with('|')) {
        for name in row.split('`').filter_map(option) {
            rows.entry(name).or_default().push(row);
        }
    }
    for command in ["push", "work", "configure", "serve", "serve token"] {
        for (name, default) in options(&help, command) {
            let named = rows.get(name.as_str());
            let named = named.unwrap_or_else(|| {
                panic!("docs/guide/settings.md has no row for --{name} of {command}")
            });
            // A default that is described in words has other words on the page, so it is not
            // compared.
            let default = default.filter(|text| !text.contains([' ', ';']));
            assert!(
                default.is_none_or(|text| named.iter().any(|row| row.contains(&grouped(&text)))),
                "docs/guide/settings.md: --{name} of {command} has another default"
            );
            count += 1;
        }
    }
    assert!(count > 80, "{count} options: the test misses options");
}

/// The methods of a type that take and return it by value: its setters.
fn setters(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (_, text) in files("src", "rs") {
        // The options of a push are declared once, for `Push` and `Message`.
        let options = format!("\nimpl {name} {{\n    push_options!();");
        if text.contains(&options) {
            let declared = read("src/model/options.rs");
            let methods = declared.split("\n        pub fn ").skip(1);
            found.extend(methods.filter_map(|method| Some(method.split_once('(')?.0.to_owned())));
        }
        for block in text.split("\nimpl").skip(1) {
            let (head, body) = block.split_once("{\n").unwrap_or_default();
            let mut words = head.split_whitespace();
            let is_of = |word: &str| word.split('<').next() == Some(name);
            if head.contains(" for ") || !words.any(is_of) {
                continue;
            }
            let body = body.split("\n}\n").next().unwrap_or_default();
            for method in body.split("\n    pub fn ").skip(1) {
                let signature = method.split('{').next().unwrap_or_default();
                let Some((name, rest)) = signature.split_once('(') else {
                    continue;
                };
                let takes = rest.trim_start();
                let takes = takes.strip_prefix("mut ").unwrap_or(takes);
                // A method with type parameters adds a queue or a layer, which is not a setting.
                if takes.starts_with("self") && rest.ends_with("-> Self ") && !name.contains('<') {
                    found.push(name.to_owned());
                }
            }
        }
    }
    found
}

#[test]
fn settings_page_names_each_setter_of_the_library() {
    let (page, mut count) = (page(), 0);
    let types = [
        "Client",
        "ClientOptions",
        "Message",
        "Queue",
        "QueueLimits",
        "QueueSettings",
        "Share",
        "Worker",
    ];
    let check = |of: &str, name: &str| {
        assert!(
            page.contains(&format!("`{of}::{name}`")),
            "docs/guide/settings.md does not name {of}::{name}"
        );
    };
    for name in types {
        let setters = setters(name);
        assert!(!setters.is_empty(), "{name}: the test misses its setters");
        count += setters.len();
        setters.iter().for_each(|setter| check(name, setter));
    }
    // The builders of one queue repeat settings that the page names once.
    setters("QueueWorker")
        .iter()
        .for_each(|name| check("Worker", name));
    assert!(count > 45, "{count} setters: the test misses some");
}

#[test]
fn settings_page_names_each_field_of_the_configuration() {
    let (page, mut count) = (page(), 0);
    for (_, text) in files("serve/src", "rs") {
        let Some((_, rest)) = text.split_once("\npub struct Config {\n") else {
            continue;
        };
        let fields = rest.split("\n}\n").next().unwrap_or_default();
        let fields = fields
            .lines()
            .filter_map(|line| line.strip_prefix("    pub "));
        for field in fields.filter_map(|line| line.split(':').next()) {
            assert!(
                page.contains(&format!("`{field}`")),
                "docs/guide/settings.md does not name the field {field} of Config"
            );
            count += 1;
        }
    }
    assert!(
        count > 8,
        "{count} fields: the test misses the configuration"
    );
}

/// How the page shows the value of a constant, whose declaration is `NAME: type = value;`.
fn shown(name: &str, value: &str) -> String {
    let call = value.strip_prefix("Duration::from_");
    let (unit, number) = match call.and_then(|rest| rest.split_once('(')) {
        Some(("secs", rest)) => (" s", rest.trim_end_matches(')')),
        Some(("millis", rest)) => (" ms", rest.trim_end_matches(')')),
        _ if name.ends_with("_MS") => (" ms", value),
        _ => ("", value),
    };
    format!("{}{unit}", grouped(&number.replace('_', "")))
}

#[test]
fn settings_page_has_the_constants_with_their_values() {
    let (page, sources, mut count) = (page(), files("src", "rs"), 0);
    let (_, rows) = page.split_once("\n## Constants\n").expect("the constants");
    for row in rows.lines().filter_map(|line| line.strip_prefix("| `")) {
        let mut cells = row.split(" | ");
        let name = cells.next().unwrap_or_default().trim_end_matches('`');
        let value = cells.next().unwrap_or_default();
        let start = format!("const {name}: ");
        let declared = sources.iter().flat_map(|(_, text)| {
            let rests = text.split(start.as_str()).skip(1);
            rests.filter_map(|rest| rest.split(';').next()?.split_once(" = "))
        });
        let values: Vec<_> = declared.map(|(_, value)| shown(name, value)).collect();
        assert!(
            values.iter().any(|declared| declared == value),
            "docs/guide/settings.md gives {name} as {value}; it is {values:?}"
        );
        count += 1;
    }
    assert!(count > 15, "{count} constants: the test misses constants");
}
