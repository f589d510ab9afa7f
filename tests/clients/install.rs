//! Toolchains and client packages: found on this machine, or installed once into
//! `target/clients/LANGUAGE`.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The longest download of a package. After it the test skips the language.
const LIMIT: Duration = Duration::from_secs(120);

/// Lets Java start with less work: each producer lives for a moment.
pub(crate) const QUICK_START: &str = "-XX:TieredStopAtLevel=1";

/// The reason why the test skips a language.
pub(crate) struct Skipped(pub(crate) String);

pub(crate) type Prepared<T> = Result<T, Skipped>;

fn skipped<T>(why: impl Into<String>) -> Prepared<T> {
    Err(Skipped(why.into()))
}

/// Output of the version command of a program; `None` if the program does not start.
fn version(program: &str, argument: &str) -> Prepared<String> {
    match Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .output()
    {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        _ => skipped(format!("there is no {program}")),
    }
}

/// The folder of a language, which contains its package. `fetch` installs a missing package.
fn package(
    language: &str,
    name: &str,
    fetch: impl FnOnce(&Path) -> Prepared<()>,
) -> Prepared<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .with_file_name("clients")
        .join(language);
    let stamp = folder.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == name) {
        return Ok(folder);
    }
    let write = |error: std::io::Error| Skipped(format!("{}: {error}", folder.display()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(write)?;
    fetch(&folder)?;
    fs::write(stamp, name).map_err(write)?;
    Ok(folder)
}

/// Runs one installation step in a folder and writes its output to the file `log` there.
fn fetch(folder: &Path, program: &str, arguments: &[&str]) -> Prepared<()> {
    let log = folder.join("log");
    let step = format!("{program} {}", arguments.join(" "));
    let run = || -> std::io::Result<bool> {
        let file = File::options().create(true).append(true).open(&log)?;
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()?;
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if let Some(status) = child.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Kill the process group: the step and its children.
        Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", child.id())])
            .status()?;
        child.wait()?;
        Ok(false)
    };
    match run() {
        Ok(true) => Ok(()),
        Ok(false) => skipped(format!(
            "`{step}` failed or took more than {LIMIT:?}: see {}",
            log.display()
        )),
        Err(error) => skipped(format!("`{step}`: {error}")),
    }
}

/// Compiles a producer. A compile error fails the test instead of skipping the language.
fn compile(folder: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()?;
    ensure!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn text(path: &Path) -> String {
    path.to_str().unwrap_or_default().to_owned()
}

/// Finds a redis-cli with the option -X (7.0 or newer).
pub(crate) fn redis_cli() -> Prepared<()> {
    let version = version("redis-cli", "--version")?;
    let major = version
        .split_whitespace()
        .nth(1)
        .and_then(|version| version.split('.').next()?.parse().ok());
    if major.is_some_and(|major: u32| major >= 7) {
        Ok(())
    } else {
        skipped(format!("{} is too old", version.trim()))
    }
}

/// Finds a Python interpreter that has the package.
pub(crate) fn python(package_name: &str) -> Prepared<String> {
    version("python3", "--version")?;
    let folder = package("python", package_name, |folder| {
        fetch(folder, "python3", &["-m", "venv", "venv"])?;
        let options = [
            "install",
            "--quiet",
            "--retries",
            "1",
            "--timeout",
            "15",
            "--disable-pip-version-check",
        ];
        fetch(
            folder,
            &text(&folder.join("venv/bin/pip")),
            &[&options[..], &[package_name]].concat(),
        )
    })?;
    Ok(text(&folder.join("venv/bin/python")))
}

/// Copies the script to where Node.js finds the package, and returns its path.
pub(crate) fn node(package_name: &str, release: &str, script: &str) -> Prepared<String> {
    version("node", "--version")?;
    let folder = package("node", package_name, |folder| {
        version("npm", "--version")?;
        let options = [
            "install",
            "--no-audit",
            "--no-fund",
            "--fetch-retries=1",
            "--fetch-timeout=15000",
            "--prefix=.",
        ];
        fetch(folder, "npm", &[&options[..], &[package_name]].concat())
    })?;
    let copy = folder.join(format!("push-{release}.js"));
    fs::copy(script, &copy).map_err(|error| Skipped(format!("{script}: {error}")))?;
    Ok(text(&copy))
}

/// Compiles the Go program, and returns its path.
pub(crate) fn go(module: &str, release: &str, source: &str) -> Result<Prepared<String>> {
    let fetched = version("go", "version").and_then(|_| {
        package("go", module, |folder| {
            fetch(folder, "go", &["mod", "init", "push"])?;
            fetch(folder, "go", &["get", module])
        })
    });
    let folder = match fetched {
        Ok(folder) => folder,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let program = format!("push-{release}");
    let copy = format!("{program}.go");
    fs::copy(source, folder.join(&copy)).with_context(|| copy.clone())?;
    compile(&folder, "go", &["build", "-o", &program, &copy])?;
    Ok(Ok(text(&folder.join(program))))
}

/// Compiles the Java program. Returns the class path with it and the jars.
pub(crate) fn java(
    (group, artifact, version_of_jar): (&str, &str, &str),
    release: &str,
    source: &str,
) -> Result<Prepared<String>> {
    let pom = format!(
        "<project><modelVersion>4.0.0</modelVersion><groupId>dueq</groupId><artifactId>push</artifactId>\
         <version>1</version><dependencies><dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
         <version>{version_of_jar}</version></dependency></dependencies></project>"
    );
    let goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";
    let fetched = version("javac", "-version").and_then(|_| {
        package("java", &pom, |folder| {
            version("mvn", "--version")?;
            fs::write(folder.join("pom.xml"), &pom).map_err(|error| Skipped(error.to_string()))?;
            fetch(
                folder,
                "mvn",
                &["--batch-mode", "--quiet", goal, "-DoutputDirectory=jars"],
            )
        })
    });
    let folder = match fetched {
        Ok(folder) => folder,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let jars = text(&folder.join("jars/*"));
    let (quick, classes) = (format!("-J{QUICK_START}"), format!("classes-{release}"));
    let options = [&quick, "-cp", &jars, "-d", &classes, source];
    compile(&folder, "javac", &options)?;
    Ok(Ok(format!("{}:{jars}", text(&folder.join(classes)))))
}
