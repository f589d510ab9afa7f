//! A run under faults, its checker and its report.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dueq_testkit::report;

use crate::check::{self, Verdict};
use crate::cluster;
use crate::faults::Kind;
use crate::queues::MOST;
use crate::recovery;
use crate::report::Report;
use crate::run::{self, Options};

/// Checks the histories of an earlier run.
#[derive(Debug, clap::Args)]
pub struct Check {
    folder: PathBuf,
}

/// A run of chaos with chosen faults, as a scenario of another proof.
#[derive(Debug, clap::Args)]
pub(crate) struct Preset {
    /// How long `faults` takes, in minutes
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    minutes: f64,
    /// Decides the workload and the faults of `faults`, and what others draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// All processes use each VERB.lua of this folder, for example a broken one
    #[arg(long, value_name = "DIR")]
    pub(crate) scripts: Option<PathBuf>,
}

pub(super) async fn judge(folder: &Path) -> Result<Verdict> {
    let folder = folder.to_owned();
    tokio::task::spawn_blocking(move || check::check(&folder)).await?
}

/// Checks the histories of an earlier run again, and prints the verdict.
pub fn check(arguments: &Check) -> Result<bool> {
    let folder = &arguments.folder;
    let mut verdict = check::check(folder)?;
    if folder.join("harness.jsonl").exists() {
        verdict.recovered_late(&recovery::of(folder)?.late);
    }
    println!("{}", serde_json::to_string(&verdict)?);
    Ok(verdict.is_green())
}

/// Runs, checks and prints. Returns whether the run is valid and without a violation.
pub async fn run(options: &Options) -> Result<bool> {
    with_report(options, |report| {
        let page = report.page();
        eprintln!("{page}");
        if let Some(path) = &options.report {
            std::fs::write(path, &page).with_context(|| format!("writing {}", path.display()))?;
        }
        println!("{}", report.json());
        Ok(report.is_green())
    })
    .await
}

/// Runs, checks, writes the report into the folder of the run, and passes it to `tell`.
async fn with_report<T>(
    options: &Options,
    tell: impl FnOnce(&Report<'_>) -> Result<T>,
) -> Result<T> {
    let ran = if options.cluster {
        Box::pin(cluster::run(options.clone())).await?
    } else {
        Box::pin(run::run(options.clone())).await?
    };
    if !options.quiet {
        eprintln!("checking the histories in {}", ran.folder.display());
    }
    let mut verdict = judge(&ran.folder).await?;
    let recoveries = recovery::of(&ran.folder)?;
    verdict.recovered_late(&recoveries.late);
    let report = Report {
        options,
        ran: &ran,
        verdict: &verdict,
        recoveries: &recoveries,
    };
    let path = ran.folder.join("report.md");
    std::fs::write(&path, report.page()).with_context(|| format!("writing {}", path.display()))?;
    if !report.is_green() {
        eprintln!("the histories and logs are in {}", ran.folder.display());
    }
    tell(&report)
}

/// Runs with only these faults. The histories are in `target/chaos/NAME`.
pub(crate) async fn preset(
    preset: &Preset,
    faults: &[Kind],
    name: &str,
    figures: &mut report::Report,
) -> Result<()> {
    let options = Options {
        seed: preset.seed,
        duration: (preset.minutes * 60.0) as u64,
        queues: MOST,
        scripts: preset.scripts.clone(),
        keep: Some(Path::new("target/chaos").join(name)),
        faults: Some(faults.to_vec()),
        ..Options::default()
    };
    with_report(&options, |report| {
        let told = report.json();
        for (name, pointer) in [
            ("messages", "/messages"),
            ("deliveries", "/deliveries"),
            ("faults", "/faults"),
            ("limits", "/limits"),
            ("schedules", "/schedules"),
        ] {
            figures.figure(name, told.pointer(pointer).cloned().unwrap_or_default());
        }
        let wrong: Vec<_> = report.wrong().cloned().collect();
        let is_valid = report.is_valid();
        figures.rule("why it proves nothing", wrong, "nothing", is_valid);
        let found = report.verdict.violations.iter();
        let found = found.filter(|(_, count)| **count > 0);
        let found: Vec<_> = found
            .map(|(kind, count)| format!("{count} {kind:?}"))
            .collect();
        let is_clean = report.verdict.is_green();
        figures.rule("violations", found, "none", is_clean);
        Ok(())
    })
    .await
}
