//! The languages of `examples/clients/`, each with the producers of two releases.

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::Result;

use crate::install::{self, Prepared, QUICK_START, Skipped};

/// The words of the command that runs a producer.
pub(crate) type Program = Vec<String>;

/// A release whose producers are tested.
pub(crate) struct Release {
    pub(crate) name: &'static str,
    folder: &'static str,
}

/// Today's producers, which users copy.
const TODAY: Release = Release {
    name: "today",
    folder: "examples/clients",
};
/// The producers of release 0.1, which keep running beside newer workers.
const FROZEN: Release = Release {
    name: "0.1",
    folder: "tests/compat/0.1/clients",
};

impl Release {
    /// Path of a producer's source file.
    fn source(&self, name: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = root.join(self.folder).join(name);
        path.to_str().unwrap_or_default().to_owned()
    }
}

/// The producers of one language.
pub(crate) struct Programs {
    pub(crate) today: Program,
    pub(crate) frozen: Program,
}

/// A language in which there is a producer.
pub(crate) struct Language {
    pub(crate) name: &'static str,
    prepare: fn(&Release) -> Result<Prepared<Program>>,
    programs: OnceLock<Prepared<Programs>>,
}

impl Language {
    const fn new(
        name: &'static str,
        prepare: fn(&Release) -> Result<Prepared<Program>>,
    ) -> Language {
        Language {
            name,
            prepare,
            programs: OnceLock::new(),
        }
    }

    /// The programs, prepared by the first test that needs them. If the machine lacks something,
    /// prints why the test skips this language.
    pub(crate) fn programs(&self) -> Result<Option<&Programs>> {
        let prepare = |release| {
            let prepared = (self.prepare)(release);
            prepared.unwrap_or_else(|error| panic!("the producer in {}: {error:#}", self.name))
        };
        let programs = self.programs.get_or_init(|| {
            Ok(Programs {
                today: prepare(&TODAY)?,
                frozen: prepare(&FROZEN)?,
            })
        });
        if let Err(Skipped(why)) = programs {
            // The harness hides output of `println!` from passing tests.
            let mut stderr = std::io::stderr();
            writeln!(stderr, "SKIPPED: the producer in {}: {why}", self.name)?;
        }
        Ok(programs.as_ref().ok())
    }
}

fn words(words: &[&str]) -> Program {
    words.iter().map(|word| (*word).to_owned()).collect()
}

pub(crate) static SHELL: Language = Language::new("shell", |release| {
    let script = release.source("push.sh");
    Ok(install::redis_cli().map(|()| words(&["sh", &script])))
});

pub(crate) static PYTHON: Language = Language::new("Python", |release| {
    let script = release.source("push.py");
    let python = install::python("redis==7.0.1");
    Ok(python.map(|python| words(&[&python, &script])))
});

pub(crate) static JAVASCRIPT: Language = Language::new("JavaScript", |release| {
    let script = install::node("ioredis@6.0.0", release.name, &release.source("push.js"));
    Ok(script.map(|script| words(&["node", &script])))
});

pub(crate) static GO: Language = Language::new("Go", |release| {
    let module = "github.com/redis/go-redis/v9@v9.17.3";
    let program = install::go(module, release.name, &release.source("push.go"))?;
    Ok(program.map(|program| words(&[&program])))
});

pub(crate) static JAVA: Language = Language::new("Java", |release| {
    let jedis = ("redis.clients", "jedis", "7.0.0");
    let classes = install::java(jedis, release.name, &release.source("Push.java"))?;
    Ok(classes.map(|classes| words(&["java", QUICK_START, "-cp", &classes, "Push"])))
});

pub(crate) static ALL: [&Language; 5] = [&SHELL, &PYTHON, &JAVASCRIPT, &GO, &JAVA];
