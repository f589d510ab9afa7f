//! The calls on one schedule of a queue: reads, ticks by hand, pause, resume and removal.

use std::sync::Arc;
use std::time::SystemTime;

use crate::error::Error;
use crate::model::due::Due;
use crate::model::schedule::{
    BackfillOutcome, Fire, Schedule, ScheduleInfo, TriggerOutcome, check_name,
};
use crate::partition::Partition;
use crate::protocol::counts::BACKFILL;
use crate::protocol::results::schedules;
use crate::protocol::verbs::Verb;
use crate::queue::declare::Declaration;
use crate::server::patience::Repeat;
use crate::telemetry::metrics::Counter;

/// One schedule of a queue: see [`Queue::schedule`](crate::Queue::schedule). Cheap to clone.
#[derive(Clone)]
pub struct ScheduleHandle {
    home: Arc<Partition>,
    name: String,
}

impl ScheduleHandle {
    pub(super) fn new(home: Arc<Partition>, name: String) -> Self {
        Self { home, name }
    }

    /// Reads the schedule with its state and its counts; `None` if the queue has no schedule of
    /// this name.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::{Schedule, ScheduleState};
    /// use std::time::Duration;
    ///
    /// orders.schedules("billing").apply([Schedule::every(Duration::from_secs(60)).name("sync")]).await?;
    /// let info = orders.schedule("sync").get().await?.unwrap();
    /// assert_eq!((info.state, info.made), (ScheduleState::Active, 0));
    /// # });
    /// ```
    pub async fn get(&self) -> Result<Option<ScheduleInfo>, Error> {
        check_name(&self.name)?;
        self.home.schedule(&self.name).await
    }

    /// The next `count` fires: see [`ScheduleInfo::next_fires`]. Empty if there is no such
    /// schedule.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// orders.schedules("billing").apply([Schedule::every(Duration::from_secs(60)).name("sync")]).await?;
    /// let fires = orders.schedule("sync").next(5).await?;
    /// assert_eq!(fires[4].nominal_ms - fires[0].nominal_ms, 240_000);
    /// # });
    /// ```
    pub async fn next(&self, count: usize) -> Result<Vec<Fire>, Error> {
        match self.get().await? {
            Some(info) => info.next_fires(count),
            None => Ok(Vec::new()),
        }
    }

    /// Makes a tick now. The tick obeys the schedule's
    /// [`OverlapPolicy`](crate::schedules::OverlapPolicy), and the next fire stays as it is. The
    /// library does not repeat the call when its reply is lost. The caller needs the rights of an
    /// operator, as for the following calls.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::{Schedule, TriggerOutcome};
    /// use std::time::Duration;
    ///
    /// orders.schedules("billing").apply([Schedule::every(Duration::from_secs(60)).name("sync")]).await?;
    /// match orders.schedule("sync").trigger().await? {
    ///     TriggerOutcome::Created(id) => assert!(id.starts_with("sync@")),
    ///     other => println!("no tick: {other:?}"),
    /// }
    /// # });
    /// ```
    pub async fn trigger(&self) -> Result<TriggerOutcome, Error> {
        check_name(&self.name)?;
        let args = [self.name.as_bytes(), b"now"];
        let mut reply = self.home.call(Verb::Trigger, &args, Repeat::Unsafe).await?;
        let results = schedules::triggered(&mut reply.body)?;
        let result = results.map(|mut results| results.pop());
        match result {
            None => Ok(TriggerOutcome::Gone),
            Some(Some(result)) => {
                if matches!(result, Ok(TriggerOutcome::Created(_))) {
                    self.home.meters().add(Counter::Triggered);
                }
                result
            }
            Some(None) => Err(reply.body.unexpected("no result")),
        }
    }

    /// Makes a tick for each past fire from `from` to `to` (both inclusive), the oldest first, in
    /// script calls of 64 ticks. It makes no second tick for a fire whose message is still in the
    /// queue. It ignores [`OverlapPolicy`](crate::schedules::OverlapPolicy) and the limit. If it
    /// fails halfway, the same call does the rest.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such schedule, or
    /// if the schedule has an overlap policy other than `Allow` and 1,000 of its ticks wait.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::Schedule;
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// orders.schedules("billing").apply([Schedule::every(Duration::from_secs(60)).name("sync")]).await?;
    /// let from = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    /// let made = orders.schedule("sync").backfill(from, from + Duration::from_secs(3_600)).await?;
    /// assert_eq!((made.created, made.existing), (60, 0));
    /// # });
    /// ```
    pub async fn backfill(
        &self,
        from: SystemTime,
        to: SystemTime,
    ) -> Result<BackfillOutcome, Error> {
        let Some(info) = self.get().await? else {
            return Err(self.gone());
        };
        let (Due::AtMs(from_ms) | Due::AfterMs(from_ms)) = Due::from(from);
        let (Due::AtMs(to_ms) | Due::AfterMs(to_ms)) = Due::from(to);
        let schedule = Schedule {
            limit: None,
            ..info.schedule
        };
        let mut done = BackfillOutcome::default();
        let mut fires = schedule.fires(from_ms.saturating_sub(1))?;
        loop {
            let times = fires.by_ref().map(|fire| fire.nominal_ms);
            let times: Vec<_> = times.take_while(|ms| *ms <= to_ms).take(BACKFILL).collect();
            if times.is_empty() {
                return Ok(done);
            }
            let is_last = times.len() < BACKFILL;
            let ended = self.backfill_some(&times, &mut done).await;
            let ended = ended.map_err(|error| match done.created {
                0 => error,
                made => error.after(&format!("{made} ticks were made")),
            })?;
            if ended || is_last {
                return Ok(done);
            }
        }
    }

    /// Makes the ticks of these nominal times. Returns whether some of them are in the future.
    async fn backfill_some(
        &self,
        times: &[u64],
        done: &mut BackfillOutcome,
    ) -> Result<bool, Error> {
        let texts: Vec<_> = times.iter().map(u64::to_string).collect();
        let mut args = vec![self.name.as_bytes()];
        args.extend(texts.iter().map(String::as_bytes));
        let mut reply = self
            .home
            .call(Verb::Trigger, &args, Repeat::Harmless)
            .await?;
        let now_ms = u64::try_from(reply.header.now_us / 1_000).unwrap_or(0);
        let Some(results) = schedules::triggered(&mut reply.body)? else {
            return Err(self.gone());
        };
        for (time, result) in times.iter().zip(results) {
            match result {
                Ok(TriggerOutcome::Created(_)) => {
                    self.home.meters().add(Counter::Triggered);
                    done.created += 1;
                }
                Ok(_) => done.existing += 1,
                Err(_) if *time > now_ms => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn gone(&self) -> Error {
        let name = &self.name;
        Error::invalid(format!("there is no schedule {name:?} in the queue"))
    }

    /// Pauses the schedule until it is resumed, even if an apply changes it meanwhile. Returns
    /// whether a schedule of this name exists. While paused it makes no ticks, and its fires count
    /// as [`paused`](ScheduleInfo::paused). Its earlier ticks stay in the queue.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::{Schedule, ScheduleState};
    /// use std::time::Duration;
    ///
    /// orders.schedules("billing").apply([Schedule::every(Duration::from_secs(60)).name("sync")]).await?;
    /// assert!(orders.schedule("sync").pause().await?);
    /// assert_eq!(orders.schedule("sync").get().await?.unwrap().state, ScheduleState::Paused);
    /// # });
    /// ```
    pub async fn pause(&self) -> Result<bool, Error> {
        self.amend("pause").await
    }

    /// Resumes the schedule: its next fire is the first one after now. Returns whether a schedule
    /// of this name exists.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert!(!orders.schedule("sync").resume().await?, "there is none");
    /// # });
    /// ```
    pub async fn resume(&self) -> Result<bool, Error> {
        self.amend("resume").await
    }

    /// Repairs a schedule after the server's clock was set back: if its last fire is in the future,
    /// it would make no tick until then. This call gives it its next fire after now, and resets its
    /// counts. Otherwise it does nothing. Returns whether a schedule of this name exists.
    ///
    /// A fire that made its tick too early, by the wrong clock, makes another tick at its time. If
    /// an apply comes between this call's read and its write, the apply is lost and must be
    /// repeated.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert!(!orders.schedule("sync").recompute().await?, "there is none");
    /// # });
    /// ```
    pub async fn recompute(&self) -> Result<bool, Error> {
        let Some(info) = self.get().await? else {
            return Ok(false);
        };
        let declaration = Declaration {
            home: self.home.clone(),
            set: info.set.clone(),
            revision: None,
            prune: false,
            forget: false,
            fire_now: false,
            dry_run: false,
            recompute: true,
        };
        Box::pin(declaration.again(&info)).await?;
        Ok(true)
    }

    /// Removes the schedule. Returns whether a schedule of this name existed. Its earlier ticks
    /// stay in the queue. The next [`apply`](crate::schedules::ScheduleSet::apply) that declares it
    /// creates it again.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// orders.schedules("billing").apply([Schedule::every(Duration::from_secs(60)).name("sync")]).await?;
    /// assert!(orders.schedule("sync").remove().await?);
    /// assert!(orders.schedule("sync").get().await?.is_none());
    /// # });
    /// ```
    pub async fn remove(&self) -> Result<bool, Error> {
        self.amend("remove").await
    }

    async fn amend(&self, change: &str) -> Result<bool, Error> {
        check_name(&self.name)?;
        let args = [change.as_bytes(), self.name.as_bytes()];
        let mut reply = self.home.call(Verb::Amend, &args, Repeat::Harmless).await?;
        schedules::amended(&mut reply.body)
    }
}
