//! The scripts by name, as they are in `lua/`.

macro_rules! scripts {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../lua/", $name, ".lua")))),*] };
}

pub(crate) const SCRIPTS: &[(&str, &str)] = scripts![
    "ack",
    "again",
    "audit",
    "beat",
    "bury",
    "cancel",
    "claim",
    "configure",
    "extend",
    "get",
    "pause",
    "peek",
    "promote",
    "purge",
    "push",
    "reap",
    "release",
    "requeue",
    "reschedule",
    "resume",
    "retry",
    "run_now",
    "stats",
    "verify",
];

#[test]
fn no_script_is_left_untested() -> anyhow::Result<()> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua"))? {
        found.extend(file?.file_name().to_str().and_then(|name| name.strip_suffix(".lua")).map(str::to_owned));
    }
    found.sort();
    anyhow::ensure!(found == SCRIPTS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    Ok(())
}
