//! Checks the form of the Lua scripts, and the keys that they touch.

use std::path::Path;

use crate::files;

/// Path, verb and text of each script in lua/, without the blocks and without lua/dist.
pub(crate) fn scripts() -> Vec<(String, String, String)> {
    let verb = |name: &str| {
        let (folder, file) = name.strip_prefix("lua/")?.split_once('/')?;
        let is_source = folder != "blocks" && folder != "dist";
        Some(file.strip_suffix(".lua")?.to_owned()).filter(|_| is_source)
    };
    let all = files("lua", "lua").into_iter();
    all.filter_map(|(name, text)| verb(&name).map(|verb| (name, verb, text)))
        .collect()
}

#[test]
fn every_script_has_its_header_and_begins_with_the_prelude() {
    for (name, verb, text) in scripts() {
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("#!lua"),
            "{name} does not begin with #!lua and its flags"
        );
        assert!(
            lines[1].starts_with(&format!("-- {verb}: ")),
            "{name} has no first comment line `-- {verb}: `"
        );
        for word in ["KEYS", "ARGV", "Reply", "Errors", "Cost", "Again"] {
            assert!(
                lines
                    .iter()
                    .any(|line| line.starts_with(&format!("-- {word}"))),
                "{name} has no line {word}"
            );
        }
        let preludes = ["prelude", "fenced_prelude", "begin", "fenced_begin", "partition"];
        assert!(
            preludes
                .iter()
                .any(|block| lines.contains(&&*format!("--- use: {block}"))),
            "{name} does not use the prelude, which checks framing and layout"
        );
    }
}

#[test]
fn lua_lines_are_short_and_each_if_has_lines_of_its_own() {
    // lua/dist is left out: it is generated from the other files, with more indentation.
    let sources = files("lua", "lua").into_iter();
    for (name, text) in sources.filter(|(name, _)| !name.starts_with("lua/dist/")) {
        for (number, line) in text.lines().enumerate() {
            let at = format!("{name}:{}", number + 1);
            assert!(line.chars().count() <= 120, "{at} is too long: {line}");
            let code = line.split(" -- ").next().unwrap_or_default().trim_end();
            let short = [" then return ", " then return", " then break"]
                .iter()
                .any(|exit| code.contains(exit));
            assert!(
                !code.trim_start().starts_with("if ") && !code.trim_start().starts_with("elseif ")
                    || !code.contains(" then ")
                    || short,
                "{at}: only return and break may follow `then`: {line}"
            );
        }
    }
}

#[test]
fn lua_dist_is_built_from_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = std::process::Command::new(root.join("scripts/lua-dist"))
        .arg("--check")
        .output()
        .expect("scripts/lua-dist");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

#[test]
fn every_block_of_lua_is_used() {
    let sources: String = files("lua", "lua")
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    let blocks = sources
        .lines()
        .filter_map(|line| line.strip_prefix("--- block: "));
    let mut count = 0;
    for block in blocks {
        let used = format!("--- use: {block}\n");
        assert!(sources.contains(&used), "no script uses the block {block}");
        count += 1;
    }
    assert!(count > 50, "{count} blocks: the test misses some");
}

/// A key built from a payload or an id could belong to another program.
#[test]
fn scripts_touch_declared_keys_only() {
    let names = "SCHEDULED READY LEASES CLAIMS MESSAGES ATTRS DEAD RECENT NODES META zset hash key wake state";
    let names: Vec<&str> = names.split(' ').collect();
    let mut count = 0;
    for (name, text) in files("lua/dist", "lua") {
        let (text, mut calls) = (text.replace("redis.pcall(", "redis.call("), 0);
        for line in text.lines().filter(|line| !line.starts_with("--")) {
            for call in line.split("redis.call(").skip(1) {
                // Here the script builds the command from a table; the key is still the second
                // word.
                let made = ["read, KEYS[i])", "reads[i], KEYS[i])"]
                    .iter()
                    .any(|made| call.starts_with(made));
                let scans = text
                    .contains("scan, step = {zset and 'ZSCAN' or 'HSCAN', zset or hash, cursor");
                if made || scans && call == "unpack(scan))" {
                    continue;
                }
                let call = call
                    .strip_prefix('\'')
                    .unwrap_or_else(|| panic!("{name}: {line}"));
                let (command, rest) = call.split_once('\'').expect("a command in quotes");
                let rest = rest
                    .trim_start_matches(", ")
                    .trim_start_matches("'ENCODING', ");
                let first: String = rest
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                let allowed = match command {
                    "TIME" => rest.starts_with(')'),
                    "PUBLISH" | "SPUBLISH" => rest.starts_with("base .. ':notice', "),
                    _ => names.contains(&first.as_str()) || rest.starts_with("KEYS["),
                };
                assert!(allowed, "{name}: {command} {rest}");
                calls += 1;
            }
            // The prelude only compares the call's keys with the names that it builds.
            for made in line.replace("~= base .. ", "~= ").split("base .. ").skip(1) {
                let is_known = ["':wake'", "':notice'", "table.concat(ARGV, ' '"]
                    .iter()
                    .any(|known| made.starts_with(known));
                // This name is not a key: it is hashed to make the `incarnation`.
                assert!(is_known, "{name} builds a key: {line}");
            }
        }
        assert!(calls > 0, "{name}: the test finds no redis.call");
        count += calls;
    }
    assert!(
        count > 300,
        "{count} calls: the test misses some redis.call"
    );
}
