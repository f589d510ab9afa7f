//! Checks that the public API has examples.

use crate::files;

/// The types whose public methods all have an example that runs.
const TYPES: [&str; 11] = [
    "Queue",
    "Push",
    "Receipt",
    "Delivery",
    "Worker",
    "QueueWorker",
    "WorkerHandle",
    "WorkerHealth",
    "Batch",
    "ScheduleSet",
    "ScheduleHandle",
];

#[test]
fn every_public_method_of_the_api_has_an_example() {
    let mut methods = 0;
    for (name, text) in files("src", "rs") {
        let (mut is_of_api, mut doc) = (false, String::new());
        for line in text.lines() {
            if line.starts_with("macro_rules! push_options") {
                is_of_api = true; // for `Push` and `Message`
            }
            if line.starts_with("impl") {
                is_of_api = !line.contains(" for ") && TYPES.contains(&type_name(line));
            }
            let code = line.trim_start();
            if is_of_api && (code.starts_with("pub fn ") || code.starts_with("pub async fn ")) {
                methods += 1;
                let opening = doc.lines().find(|line| line.starts_with("/// ```"));
                assert!(
                    opening == Some("/// ```"),
                    "{name}: {code} needs an example that runs: see testkit/src/examples.rs"
                );
            }
            match code.starts_with("///") || code.starts_with("#[") {
                true => doc = doc + code + "\n",
                false => doc.clear(),
            }
        }
    }
    assert!(
        methods > 90,
        "only {methods} methods found: the test searches the wrong files"
    );
}

/// The name of the type, such as `Queue` for `impl<C: Codec> Queue<C> {`.
fn type_name(line: &str) -> &str {
    let of_type = line.split_once("> ").filter(|_| line.starts_with("impl<"));
    let name = of_type.map_or(line.trim_start_matches("impl "), |(_, name)| name);
    name.split(['<', ' ']).next().unwrap_or_default()
}
