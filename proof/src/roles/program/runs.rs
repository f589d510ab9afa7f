//! What a program tells of its handlers: a line for each start, `TIME_MS ID ATTEMPT HASH`. The id
//! is in hexadecimal digits, the hash is the SHA-1 of the payload.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};

use crate::history::{ClaimedItem, Event, now_us};
use crate::payload;
use crate::recorder::Diary;
use crate::workload::POISON;

pub(super) struct Runs {
    file: File,
    /// The begin of a line whose end was not read yet.
    rest: Vec<u8>,
    queue: &'static str,
    diary: Diary,
    /// What was granted and has not begun, by id and attempt.
    granted: HashMap<(String, u32), ClaimedItem>,
}

pub(super) fn locked(runs: &Mutex<Runs>) -> MutexGuard<'_, Runs> {
    runs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runs {
    pub(super) fn new(path: PathBuf, queue: &'static str, diary: Diary) -> Result<Self> {
        File::create(&path).with_context(|| path.display().to_string())?;
        Ok(Self {
            file: File::open(path)?,
            rest: Vec::new(),
            queue,
            diary,
            granted: HashMap::new(),
        })
    }

    pub(super) fn granted(&mut self, items: Vec<ClaimedItem>) {
        for item in items {
            self.granted.insert((item.0.clone(), item.3), item);
        }
    }

    /// Records the starts that the program has told. A poison message ends the process here.
    pub(super) fn read(&mut self) -> Result<()> {
        self.file.read_to_end(&mut self.rest)?;
        while let Some(length) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=length).collect();
            let line = String::from_utf8(line)?;
            let event = self
                .started(line.trim_end())
                .with_context(|| line.clone())?;
            self.diary.write(&event);
            if matches!(event, Event::Started { id, .. } if id.contains(POISON)) {
                std::process::abort();
            }
        }
        Ok(())
    }

    fn started(&mut self, line: &str) -> Result<Event> {
        let words: Vec<_> = line.split(' ').collect();
        let [_, id, attempt, hash] = words[..] else {
            anyhow::bail!("no line of a start");
        };
        let id = String::from_utf8_lossy(&bytes_of(id)?).into_owned();
        let attempt = attempt.parse()?;
        let granted = self.granted.remove(&(id.clone(), attempt));
        let (version, due_ms) =
            granted.map_or((0, 0), |ClaimedItem(_, version, due_ms, _, bytes, _)| {
                let pushed = payload::make(&id, version, bytes as usize);
                let is_pushed = sha1_smol::Sha1::from(pushed).digest().to_string() == hash;
                (if is_pushed { version } else { 0 }, due_ms)
            });
        Ok(Event::Started {
            queue: self.queue.to_owned(),
            id,
            version,
            attempt,
            due_ms,
            started_us: now_us(),
            // The program does not tell when its handlers end, so their number is not judged.
            by_hand: true,
        })
    }
}

fn bytes_of(digits: &str) -> Result<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2).map(std::str::from_utf8);
    pairs
        .map(|pair| Ok(u8::from_str_radix(pair?, 16)?))
        .collect()
}
