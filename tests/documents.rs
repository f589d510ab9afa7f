//! Checks the documents: links lead somewhere, each verb is described, and the shell sessions on
//! the pages of the protocol print what the pages show.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use dueq_testkit::Server;

/// The parts of each verb's section in docs/protocol/verbs, in this order.
const PARTS: [&str; 7] = [
    "Purpose",
    "Arguments",
    "Result",
    "Effects in order",
    "Errors",
    "Repeating it",
    "Notes",
];

/// The pages whose shell sessions are run, as one session in this order: later pages use what
/// earlier ones set.
const SESSIONS: [&str; 4] = ["producer.md", "consumer.md", "keys.md", "calling.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}

/// The Markdown files that git tracks, by their path from the root of the repository.
fn documents() -> Result<BTreeMap<PathBuf, String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "*.md"])
        .current_dir(root())
        .output()?;
    ensure!(output.status.success(), "git ls-files: {output:?}");
    let names = String::from_utf8(output.stdout)?;
    let names = names.split_terminator('\0');
    names
        .map(|name| Ok((PathBuf::from(name), read(name)?)))
        .collect()
}

/// The lines outside fenced code, without inline code.
fn prose(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            lines.push(line.split('`').step_by(2).collect::<Vec<_>>().join("``"));
        }
    }
    lines
}

/// The anchors of a page, as GitHub makes them of its headings.
fn anchors(text: &str) -> Vec<String> {
    let (mut found, mut count, mut in_code) = (Vec::new(), HashMap::new(), false);
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if in_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().to_lowercase();
        let kept = kept.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ => c.is_alphanumeric().then_some(c),
        });
        let slug: String = kept.collect();
        let earlier = count.entry(slug.clone()).or_insert(0);
        found.push(match *earlier {
            0 => slug,
            n => format!("{slug}-{n}"),
        });
        *earlier += 1;
    }
    found
}

/// The targets of the links in a line: `[text](target)` and `[label]: target`.
fn targets(line: &str) -> Vec<&str> {
    let inline = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next());
    let label = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .map(|(_, target)| target);
    inline.chain(label).collect()
}

/// Normalizes a path: removes `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// The reason why a link on this page leads nowhere; `None` if it leads somewhere.
fn broken(
    page: &Path,
    target: &str,
    documents: &BTreeMap<PathBuf, String>,
) -> Option<&'static str> {
    let external = ["http://", "https://", "mailto:"];
    // Links in doc comments name Rust items.
    if external.iter().any(|start| target.starts_with(start)) || target.contains("::") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() {
        page.to_owned()
    } else {
        normal(&page.parent().unwrap_or(Path::new("")).join(file))
    };
    if !documents.contains_key(&path) && !root().join(&path).exists() {
        return Some("no such file");
    }
    if anchor.is_empty() {
        return None;
    }
    match documents.get(&path) {
        None => Some("an anchor in a file that is no page"),
        Some(text) if anchors(text).iter().any(|found| found == anchor) => None,
        Some(_) => Some("no such heading"),
    }
}

#[test]
fn links_lead_to_files_and_headings() -> Result<()> {
    let documents = documents()?;
    let (mut count, mut wrong) = (0, Vec::new());
    for (page, text) in &documents {
        for line in prose(text) {
            for target in targets(&line) {
                count += 1;
                if let Some(why) = broken(page, target, &documents) {
                    wrong.push(format!("{}: {target}: {why}", page.display()));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(
        count > 100,
        "{count} links: this test looks in the wrong files"
    );
    Ok(())
}

#[test]
fn table_of_contents_of_each_page_lists_its_sections() -> Result<()> {
    let mut count = 0;
    for (path, text) in documents()? {
        let (head, _) = text.split_once("\n## ").unwrap_or_default();
        let listed: Vec<_> = head
            .lines()
            .flat_map(targets)
            .filter_map(|target| target.strip_prefix('#'))
            .collect();
        if !head.contains("\n- [") || listed.is_empty() {
            continue;
        }
        let mut in_code = false;
        for line in text.lines() {
            in_code ^= line.starts_with("```");
            let title = line.strip_prefix("## ").filter(|_| !in_code);
            for anchor in title
                .iter()
                .flat_map(|title| anchors(&format!("# {title}")))
            {
                ensure!(
                    listed.contains(&anchor.as_str()),
                    "{}: the contents lack {anchor}",
                    path.display()
                );
            }
        }
        count += 1;
    }
    ensure!(count > 10, "{count} pages: the test misses contents");
    Ok(())
}

#[test]
fn the_link_check_finds_broken_links() {
    let text = "# One page\n## Verb × state\n## A `b`: c_d\n## One page\n```\n## No\n```\n";
    let documents = BTreeMap::from([(PathBuf::from("docs/a.md"), text.to_owned())]);
    let check = |target| broken(Path::new("docs/a.md"), target, &documents);
    for good in ["#one-page", "#verb--state", "#a-b-c_d", "#one-page-1"] {
        assert_eq!(check(good), None, "{good}");
    }
    for good in ["../README.md", "../src", "https://a.example/#b"] {
        assert_eq!(check(good), None, "{good}");
    }
    for bad in ["#no", "README.md", "../none.md", "../Cargo.toml#package"] {
        assert!(check(bad).is_some(), "{bad}");
    }
    assert_eq!(
        targets("[a](b.md#c) and ![d](e.svg \"f\")"),
        ["b.md#c", "e.svg"]
    );
    assert_eq!(targets("[a]: b.md"), ["b.md"]);
    assert_eq!(prose("a `](b)` c\n```\nd\n```\ne"), ["a `` c", "e"]);
}

/// The names of the files in a folder with this ending, without the ending.
fn names(folder: &str, ending: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for file in fs::read_dir(root().join(folder))? {
        let name = file?.file_name();
        found.extend(
            name.to_str()
                .and_then(|name| name.strip_suffix(ending))
                .map(str::to_owned),
        );
    }
    found.sort();
    Ok(found)
}

#[test]
fn each_verb_has_a_section_with_all_parts() -> Result<()> {
    let mut described = Vec::new();
    let index = read("docs/protocol/verbs/README.md")?;
    for subject in names("docs/protocol/verbs", ".md")? {
        let page = read(&format!("docs/protocol/verbs/{subject}.md"))?;
        for section in page.split("\n## ").skip(1).filter(|_| subject != "README") {
            let (verb, text) = section.split_once('\n').context("a verb")?;
            let parts = text.lines().filter_map(|line| line.strip_prefix("### "));
            let found: Vec<&str> = parts.collect();
            let expected = PARTS.map(|part| format!("{verb}: {part}"));
            ensure!(
                found == expected,
                "{subject}.md: the parts of {verb} are {found:?}, not {expected:?}"
            );
            described.push(check_row(&index, &subject, verb)?);
        }
    }
    described.sort();
    let verbs = names("lua/dist", ".lua")?;
    ensure!(
        verbs == described,
        "verbs and their sections differ: {verbs:?}, {described:?}"
    );
    Ok(())
}

/// Compares a verb's row in the index with its script; returns the verb.
fn check_row(index: &str, subject: &str, verb: &str) -> Result<String> {
    let start = format!("| [{verb}]({subject}.md#{verb}) |");
    let row = index.lines().find(|line| line.starts_with(&start));
    let row = row.with_context(|| format!("verbs/README.md has no row {start}"))?;
    let script = read(&format!("lua/{subject}/{verb}.lua"))?;
    let (flag, full) = match script.lines().next().unwrap_or("") {
        "#!lua" => ("-", "refused, `OOM`"),
        "#!lua flags=allow-oom" => ("`allow-oom`", "runs"),
        "#!lua flags=no-writes" => ("`no-writes`", "runs"),
        other => bail!("{verb}.lua begins with {other}"),
    };
    ensure!(
        row.contains(&format!(" | {full} | {flag} | ")),
        "verbs/README.md: the flag of {verb} is {flag}"
    );
    Ok(verb.to_owned())
}

#[test]
fn pages_of_the_protocol_are_short() -> Result<()> {
    for (path, text) in documents()? {
        let lines = text.lines().count();
        let is_long = path.starts_with("docs/protocol") && lines > 300;
        ensure!(
            !is_long,
            "{} has {lines} lines, more than 300",
            path.display()
        );
    }
    Ok(())
}

/// The commands of the `console` blocks of a page, each with the lines that it prints.
fn session(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut steps: Vec<(&str, Vec<&str>)> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        for line in block.lines().take_while(|line| *line != "```") {
            match line.strip_prefix("$ ") {
                Some(command) => steps.push((command, Vec::new())),
                None => steps
                    .iter_mut()
                    .last()
                    .into_iter()
                    .for_each(|step| step.1.push(line)),
            }
        }
    }
    steps
}

/// Replaces what differs from run to run: times, and the incarnation of a queue.
fn generalized(line: &str) -> String {
    let mut words = Vec::new();
    for word in line.split(' ') {
        let core = word.trim_matches('"');
        let is_time = core.len() >= 13 && core.bytes().all(|byte| byte.is_ascii_digit());
        let is_incarnation = core.len() == 16 && core.bytes().all(|byte| byte.is_ascii_hexdigit());
        words.push(match core.len() {
            length if is_time => word.replace(core, &format!("<{length} digits>")),
            _ if is_incarnation => word.replace(core, "<incarnation>"),
            _ => word.to_owned(),
        });
    }
    words.join(" ")
}

#[test]
fn sessions_print_what_the_pages_show() -> Result<()> {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no redis-cli to run the sessions with");
        return Ok(());
    }
    let server = Server::start(&[])?;
    server.command(&["FUNCTION", "LOAD", &dueq::admin::functions_code()])?;
    let mut pages = Vec::new();
    for name in SESSIONS {
        pages.push(read(&format!("docs/protocol/{name}"))?);
    }
    let steps: Vec<_> = pages.iter().flat_map(|page| session(page)).collect();
    ensure!(steps.len() > 15, "{} steps: no sessions found", steps.len());

    // redis-cli numbers the elements of a reply on a terminal, but not in a pipe. Standard output is a file here, so
    // `--no-raw` makes redis-cli print as on a terminal.
    let mut script = format!(
        "redis-cli() {{ local raw=--no-raw; [[ -p /dev/stdout ]] && raw=--raw; \
         command redis-cli -p {} $raw \"$@\"; }}\n",
        server.port()
    );
    for (number, (command, _)) in steps.iter().enumerate() {
        script.push_str(&format!("{command}\necho '=== {number}'\n"));
    }
    let printed = server.folder().join("session");
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(root())
        .stdout(fs::File::create(&printed)?)
        .output()?;
    let printed = fs::read_to_string(&printed)?;
    let mut rest = printed.as_str();
    for (number, (command, expected)) in steps.iter().enumerate() {
        let end = format!("=== {number}\n");
        let (lines, after) = rest
            .split_once(&end)
            .with_context(|| format!("{command}: not reached: {output:?}"))?;
        rest = after;
        let found: Vec<String> = lines
            .lines()
            .filter(|line| !line.is_empty())
            .map(generalized)
            .collect();
        let expected: Vec<String> = expected.iter().map(|line| generalized(line)).collect();
        ensure!(
            found == expected,
            "{command}\nprinted {found:#?}\nthe page shows {expected:#?}"
        );
    }
    Ok(())
}
