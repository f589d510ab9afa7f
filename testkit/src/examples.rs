//! Builds the repository's examples for tests that run them, runs the examples of pages, and finds
//! installed programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

/// Builds an example and returns the path of its program. `cargo test` builds examples only for
/// some choices of targets. The features are those of the whole workspace, as in `make test`, so
/// nothing is compiled twice.
pub fn example(name: &str) -> Result<PathBuf> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    if let Some(folder) = FOLDER.get() {
        return Ok(folder.join(name));
    }
    // The path of this test is target/PROFILE/deps/THIS-HASH.
    let this = std::env::current_exe()?;
    let profile = this.ancestors().nth(2).context("no profile directory")?;
    let target = profile.parent().context("no target directory")?;
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet", "--locked", "--workspace", "--examples"])
        .arg("--target-dir")
        .arg(target);
    if profile.ends_with("release") {
        build.arg("--release");
    }
    // Unset Cargo's variables for this test: they would make build scripts run again.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            build.env_remove(name);
        }
    }
    let built = build
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .status()?;
    ensure!(built.success(), "cargo build --examples: {built}");
    Ok(FOLDER.get_or_init(|| profile.join("examples")).join(name))
}

/// Runs an example as `async` code on its own server. `?` works in it for any error.
///
/// The names between the bars become variables: `client` (connected), `orders` (a queue),
/// `delivery` (a claimed message of `orders` with the id `order:42` and the payload `42`) and
/// `worker` (a handle of a running worker of `orders`).
///
/// The crate with the example needs the dependencies `dueq` and `tokio`.
#[macro_export]
macro_rules! doctest {
    (|$($name:ident),*| { $($example:tt)* }) => {
        let server = $crate::Server::start(&[]).expect("a server");
        let example = async {
            let connected = ::dueq::Client::connect(&server.url()).await?;
            $(let $name = $crate::doctest!(@$name connected);)*
            $($example)*
            Ok::<(), Box<dyn ::std::error::Error + Send + Sync>>(())
        };
        let runtime = ::tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(example).expect("the example succeeds");
    };
    (@client $client:ident) => { $client.clone() };
    (@orders $client:ident) => { $client.queue("orders")? };
    (@delivery $client:ident) => {{
        let orders = $client.queue("orders")?;
        orders.push("42").id("order:42").await?;
        let claim = || orders.claim(1, ::std::time::Duration::from_secs(60));
        loop {
            // The message is due from the next millisecond on.
            if let Some(delivery) = claim().await?.pop() {
                break delivery;
            }
        }
    }};
    (@worker $client:ident) => {
        $client.worker().queue(&$client.queue("orders")?, |_: ::dueq::Delivery| async {}).spawn()?
    };
}

/// The path of a program: from the variable `DUEQ_NAME`, such as `DUEQ_NGINX`, which `.ci/run`
/// sets; else from the usual folders of packages. If there is none, prints that tests are skipped.
pub fn installed(name: &str) -> Option<PathBuf> {
    let given = std::env::var_os(format!("DUEQ_{}", name.to_uppercase()));
    let folders = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    let places = folders.map(|folder| Path::new(folder).join(name));
    let found = given
        .map(PathBuf::from)
        .or_else(|| places.into_iter().find(|place| place.exists()));
    if found.is_none() {
        eprintln!("SKIPPED: what needs {name}: `apt-get install {name}` installs it");
    }
    found
}
