//! The shop's ratings in SQLite. Several processes write them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rusqlite::{Connection, params};
use tokio::sync::{mpsc, oneshot};

/// The last row of an order in `ratings` is its rating; rows are only added. A row without stars is
/// a message that fired when the order was already rated.
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE orders (
        order_id TEXT PRIMARY KEY,
        delivered_ms INTEGER NOT NULL,  -- as written, without a zone
        stars INTEGER CHECK (stars BETWEEN 1 AND 5),
        rated_by TEXT CHECK (rated_by IN ('auto', 'buyer'))
    );
    CREATE TABLE ratings (
        order_id TEXT NOT NULL REFERENCES orders,
        stars INTEGER,
        rated_by TEXT,
        due_ms INTEGER,                 -- when the message was due, by Redis's clock
        fired_ms REAL,                  -- when its handler started, by the same clock, to the microsecond
        attempt INTEGER
    );
    CREATE INDEX ratings_of_order ON ratings (order_id);
    CREATE TRIGGER in_force AFTER INSERT ON ratings WHEN new.stars IS NOT NULL BEGIN
        UPDATE orders SET stars = new.stars, rated_by = new.rated_by WHERE order_id = new.order_id;
    END;
    CREATE TRIGGER append_only BEFORE UPDATE ON ratings BEGIN SELECT raise(ABORT, 'ratings are only added'); END;
    CREATE TRIGGER kept BEFORE DELETE ON ratings BEGIN SELECT raise(ABORT, 'ratings are only added'); END;";

/// Inserts five stars if there is no review. The statement is safe to repeat: a second run finds
/// the stars of the first.
const RATE: &str = "
    INSERT INTO ratings (order_id, stars, rated_by, due_ms, fired_ms, attempt)
    SELECT order_id, iif(stars IS NULL, 5, NULL), iif(stars IS NULL, 'auto', NULL), ?2, ?3, ?4
    FROM orders WHERE order_id = ?1";

const REVIEW: &str = "INSERT INTO ratings (order_id, stars, rated_by) SELECT order_id, ?2, 'buyer' FROM orders WHERE order_id = ?1";

const DELIVER: &str = "INSERT INTO orders (order_id, delivered_ms) VALUES (?1, ?2)";

/// One entry to write.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Delivered {
        order_id: String,
        delivered_ms: i64,
    },
    Reviewed {
        order_id: String,
        stars: u8,
    },
    Fired {
        order_id: String,
        due_ms: u64,
        fired_us: u64,
        attempt: u32,
    },
}

impl Entry {
    /// Whether the order exists.
    fn write(&self, books: &Connection) -> rusqlite::Result<bool> {
        let rows = match self {
            Self::Delivered {
                order_id,
                delivered_ms,
            } => books
                .prepare_cached(DELIVER)?
                .execute(params![order_id, delivered_ms]),
            Self::Reviewed { order_id, stars } => books
                .prepare_cached(REVIEW)?
                .execute(params![order_id, stars]),
            Self::Fired {
                order_id,
                due_ms,
                fired_us,
                attempt,
            } => {
                let (due_ms, fired_ms) = (
                    i64::try_from(*due_ms).unwrap_or(i64::MAX),
                    *fired_us as f64 / 1_000.0,
                );
                books
                    .prepare_cached(RATE)?
                    .execute(params![order_id, due_ms, fired_ms, attempt])
            }
        }?;
        Ok(rows > 0)
    }
}

/// Creates the database at an unused path.
pub(crate) fn create(path: &Path) -> Result<()> {
    let what = || format!("cannot make the database {}", path.display());
    anyhow::ensure!(
        !path.exists(),
        "{} exists: name another file, or remove it",
        path.display()
    );
    open(path)?.execute_batch(SCHEMA).with_context(what)
}

pub(crate) fn open(path: &Path) -> Result<Connection> {
    let open = || {
        let books = Connection::open(path)?;
        books.busy_timeout(Duration::from_secs(10))?;
        // The write-ahead log survives every crash except one of the machine, and only checkpoints
        // wait for the disk.
        books.pragma_update(None, "synchronous", "NORMAL")?;
        books.pragma_update(None, "wal_autocheckpoint", 0)?;
        Ok::<_, rusqlite::Error>(books)
    };
    open().with_context(|| format!("cannot open the database {}", path.display()))
}

/// Moves the log into the tables once a second, for ever, so that no writer waits for the disk.
pub(crate) async fn checkpoint(path: &Path) -> Result<()> {
    let books = Arc::new(Mutex::new(open(path)?));
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let books = Arc::clone(&books);
        let checkpoint = move || {
            let books = books.lock().unwrap_or_else(PoisonError::into_inner);
            books.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
        };
        tokio::task::spawn_blocking(checkpoint).await??;
    }
}

/// An entry to write, and the channel for its result.
type Job = (Entry, oneshot::Sender<Result<bool>>);

/// Writes entries for asynchronous callers on a separate thread, because SQLite blocks. Entries
/// that arrive during one transaction form the next one.
#[derive(Clone)]
pub(crate) struct Writer(mpsc::UnboundedSender<Job>);

impl Writer {
    pub(crate) fn start(path: &Path) -> Result<Self> {
        let mut books = open(path)?;
        let (sender, mut jobs) = mpsc::unbounded_channel::<Job>();
        std::thread::Builder::new()
            .name("books".to_owned())
            .spawn(move || {
                let mut batch = Vec::new();
                while jobs.blocking_recv_many(&mut batch, 256) > 0 {
                    commit(&mut books, std::mem::take(&mut batch));
                }
            })?;
        Ok(Self(sender))
    }

    /// Returns after the commit: `false` if the order does not exist.
    pub(crate) async fn enter(&self, entry: Entry) -> Result<bool> {
        let (answer, written) = oneshot::channel();
        self.0
            .send((entry, answer))
            .ok()
            .context("the books are closed")?;
        written.await.context("the books were closed")?
    }
}

fn commit(books: &mut Connection, batch: Vec<Job>) {
    let write = |books: &mut Connection| {
        let transaction =
            books.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        // A failed statement rolls back only itself.
        let results: Vec<_> = batch
            .iter()
            .map(|(entry, _)| entry.write(&transaction))
            .collect();
        transaction.commit().map(|()| results)
    };
    let results = match write(books) {
        Ok(results) => results
            .into_iter()
            .map(|result| result.context("the books refused it"))
            .collect(),
        Err(error) => batch
            .iter()
            .map(|_| Err(anyhow::anyhow!("cannot write the books: {error}")))
            .collect::<Vec<_>>(),
    };
    for ((_, answer), result) in batch.into_iter().zip(results) {
        // The caller may have been dropped meanwhile.
        let _ = answer.send(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> Connection {
        let books = Connection::open_in_memory().expect("opens");
        books.execute_batch(SCHEMA).expect("makes the tables");
        let delivered = Entry::Delivered {
            order_id: "a".to_owned(),
            delivered_ms: 7,
        };
        assert!(delivered.write(&books).expect("written"));
        books
    }

    fn fired(order_id: &str, attempt: u32) -> Entry {
        Entry::Fired {
            order_id: order_id.to_owned(),
            due_ms: 1_000,
            fired_us: 1_000_250,
            attempt,
        }
    }

    fn reviewed(stars: u8) -> Entry {
        Entry::Reviewed {
            order_id: "a".to_owned(),
            stars,
        }
    }

    /// The stars of an order and their source, if it is rated.
    fn in_force(books: &Connection) -> (Option<u8>, Option<String>) {
        books
            .query_row("SELECT stars, rated_by FROM orders", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .expect("one order")
    }

    fn count(books: &Connection, condition: &str) -> u32 {
        let sql = format!("SELECT count(*) FROM ratings WHERE {condition}");
        books
            .query_row(&sql, [], |row| row.get(0))
            .expect("counted")
    }

    #[test]
    fn five_stars_if_no_review_is_there_however_often_it_fires() {
        let books = books();
        for attempt in 1..=3 {
            assert!(fired("a", attempt).write(&books).expect("written"));
            assert_eq!(in_force(&books), (Some(5), Some("auto".to_owned())));
        }
        assert_eq!(count(&books, "rated_by = 'auto'"), 1, "rated once");
        assert_eq!(
            count(&books, "due_ms = 1000 AND fired_ms = 1000.25"),
            3,
            "every firing is there"
        );
    }

    #[test]
    fn a_review_that_is_there_is_left_alone() {
        let books = books();
        assert!(reviewed(2).write(&books).expect("written"));
        assert!(fired("a", 1).write(&books).expect("written"));
        assert_eq!(in_force(&books), (Some(2), Some("buyer".to_owned())));
        assert_eq!(count(&books, "rated_by = 'auto'"), 0);
    }

    #[test]
    fn a_later_review_replaces_the_automatic_rating_for_good() {
        let books = books();
        for entry in [fired("a", 1), reviewed(1), fired("a", 2)] {
            assert!(entry.write(&books).expect("written"));
        }
        assert_eq!(in_force(&books), (Some(1), Some("buyer".to_owned())));
        assert_eq!(
            count(&books, "stars IS NOT NULL"),
            2,
            "the history has both"
        );
    }

    #[test]
    fn unknown_order_is_reported_and_nothing_is_written() {
        let books = books();
        assert!(!fired("b", 1).write(&books).expect("no error"));
        assert_eq!(count(&books, "true"), 0);
    }

    #[test]
    fn history_cannot_be_rewritten() {
        let books = books();
        fired("a", 1).write(&books).expect("written");
        assert!(books.execute("UPDATE ratings SET stars = 1", []).is_err());
        assert!(books.execute("DELETE FROM ratings", []).is_err());
    }

    #[test]
    fn one_refused_entry_does_not_hurt_those_committed_with_it() {
        let mut books = books();
        let (answers, mut results): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        let batch = [fired("a", 1), reviewed(9), fired("b", 1)]
            .into_iter()
            .zip(answers)
            .collect();
        commit(&mut books, batch);
        let results: Vec<_> = results
            .iter_mut()
            .map(|result| result.try_recv().expect("answered").ok())
            .collect();
        assert_eq!(results, [Some(true), None, Some(false)]);
        assert_eq!(in_force(&books), (Some(5), Some("auto".to_owned())));
    }
}
