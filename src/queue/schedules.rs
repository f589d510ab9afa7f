//! The calls on all schedules of a queue: declaring sets, reading pages, and refilling the lists of
//! crons.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::schedule::{
    RefillOutcome, Schedule, ScheduleChanges, ScheduleCursor, SchedulePage, check_name, check_set,
};
use crate::partition::{Lists, Partition};
use crate::protocol::counts::MAX_ITEMS;
use crate::protocol::limits;
use crate::queue::Queue;
use crate::queue::declare::{Declaration, of};
use crate::queue::schedule::ScheduleHandle;

/// The largest revision that scripts accept.
const MAX_REVISION: u64 = 1 << 53;

impl<C: Codec> Queue<C> {
    /// Returns the set of schedules of this name, for [`apply`](ScheduleSet::apply). A set belongs
    /// to the service or team that declares it: an apply of one set changes no schedule of another.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(900)).name("sync").payload("all");
    /// let changes = orders.schedules("billing").revision(42).prune(true).apply([sync]).await?;
    /// assert_eq!(changes.created[0].name, "sync");
    /// # });
    /// ```
    pub fn schedules(&self, set: impl Into<String>) -> ScheduleSet {
        ScheduleSet {
            home: Arc::clone(self.router().current().home()),
            set: set.into(),
            revision: None,
            prune: false,
            forget: false,
            fire_now: false,
            dry_run: false,
        }
    }

    /// Returns the schedule of this name, for reading it and changing its state. Makes no call.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert!(orders.schedule("report").get().await?.is_none());
    /// # });
    /// ```
    pub fn schedule(&self, name: impl Into<String>) -> ScheduleHandle {
        let home = Arc::clone(self.router().current().home());
        ScheduleHandle::new(home, name.into())
    }

    /// Returns a page of up to `limit` (1 to 1,000) schedules of all sets. Without a cursor it is
    /// the first page. The server reads 64 schedules per call, so a page can be shorter than
    /// `limit`. The last page has no [`next`](SchedulePage::next).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// orders.schedules("billing").apply([Schedule::every(Duration::from_secs(60)).name("sync")]).await?;
    /// for schedule in orders.list_schedules(None, 100).await?.schedules {
    ///     println!("{} ({}): {:?}", schedule.name, schedule.state, schedule.next_ms);
    /// }
    /// # assert_eq!(orders.list_schedules(None, 100).await?.schedules.len(), 1);
    /// # });
    /// ```
    pub async fn list_schedules(
        &self,
        cursor: Option<&ScheduleCursor>,
        limit: usize,
    ) -> Result<SchedulePage, Error> {
        if !(1..=MAX_ITEMS).contains(&limit) {
            return Err(Error::invalid(format!(
                "a page of {limit} schedules: a page has 1 to {MAX_ITEMS}"
            )));
        }
        let known = self.router().current();
        known.home().schedules(cursor, limit, Lists::All).await
    }

    /// Refills the lists of the next fires of all crons of the queue, up to 512 fires each. It
    /// replaces lists that were made by older time zone rules than those of this program. A full
    /// list of a cron that fires each minute lasts 8.5 h, of a daily one 17 months.
    ///
    /// The leader of the queue's workers does this if it has the cargo feature `schedules`. Call it
    /// once an hour if no such worker runs: `dueq schedule keep`. The caller needs the rights of a
    /// consumer. Cheap if nothing is to be done.
    ///
    /// A schedule whose list was empty fires again; its policy for
    /// [missed](crate::schedules::MissedPolicy) fires applies.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert_eq!(orders.refill_schedules().await?.lists, 0);
    /// # });
    /// ```
    pub async fn refill_schedules(&self) -> Result<RefillOutcome, Error> {
        let known = self.router().current();
        known.home().refill(Lists::All, &mut HashSet::new()).await
    }
}

/// A set of schedules to declare: see [`Queue::schedules`].
#[derive(Clone)]
#[must_use = "nothing happens until `apply`"]
pub struct ScheduleSet {
    home: Arc<Partition>,
    set: String,
    revision: Option<u64>,
    prune: bool,
    forget: bool,
    fire_now: bool,
    dry_run: bool,
}

impl ScheduleSet {
    /// The revision of the declaration, such as the number of a release: 0 to 2^53. An apply of a
    /// lower revision than the stored one fails, so that an old process of a rolling deploy cannot
    /// undo the new process's apply.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.schedules("billing").revision(42).apply([]).await?;
    /// let error = orders.schedules("billing").revision(41).apply([]).await.unwrap_err();
    /// assert_eq!(error.code(), Some("STALE"));
    /// # });
    /// ```
    pub fn revision(mut self, revision: u64) -> Self {
        self.revision = Some(revision);
        self
    }

    /// Sets whether an apply removes the schedules of the set that it omits; `false` unless set.
    /// Their ticks stay.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// orders.schedules("billing").apply([Schedule::every(Duration::from_secs(60)).name("sync")]).await?;
    /// let changes = orders.schedules("billing").prune(true).apply([]).await?;
    /// assert_eq!(changes.removed, ["sync"]);
    /// # });
    /// ```
    pub fn prune(mut self, prune: bool) -> Self {
        self.prune = prune;
        self
    }

    /// Sets whether the queue forgets the set and its revision if the set has no schedules after
    /// the call; `false` unless set. A queue has at most 1,000 sets, including sets without
    /// schedules.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.schedules("billing").revision(42).apply([]).await?;
    /// orders.schedules("billing").forget(true).apply([]).await?;
    /// orders.schedules("billing").revision(41).apply([]).await?;
    /// # });
    /// ```
    pub fn forget(mut self, forget: bool) -> Self {
        self.forget = forget;
        self
    }

    /// Sets whether each newly created schedule makes a tick at once; `false` unless set. Changed
    /// and kept schedules do not.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// let daily = Schedule::every(Duration::from_secs(86_400)).name("report");
    /// orders.schedules("billing").fire_now(true).apply([daily]).await?;
    /// assert_eq!(orders.schedule("report").get().await?.unwrap().triggered, 1);
    /// # });
    /// ```
    pub fn fire_now(mut self, fire_now: bool) -> Self {
        self.fire_now = fire_now;
        self
    }

    /// Sets whether an apply only returns what it would change; `false` unless set.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// let daily = Schedule::every(Duration::from_secs(86_400)).name("report");
    /// let changes = orders.schedules("billing").dry_run(true).apply([daily]).await?;
    /// assert_eq!(changes.created.len(), 1);
    /// assert!(orders.schedule("report").get().await?.is_none());
    /// # });
    /// ```
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Creates and changes the given schedules of the set, up to 1,000. Up to 24 are applied in one
    /// call: all or nothing. More of them, and the removal of more than 24, take several calls. The
    /// server checks all of them before it changes the first. If the connection then fails between
    /// two calls, only some schedules are applied; repeating the apply is harmless and completes
    /// it.
    ///
    /// A schedule that is already stored with the same spec and payload keeps its next fire and its
    /// counts. Nothing fires unless [`fire_now`](ScheduleSet::fire_now) is set. The caller needs
    /// the rights of an operator.
    ///
    /// The queue gets layout 4, which cannot be undone. Releases before 0.2 refuse it: their
    /// workers stop, and their producers get errors. So apply schedules only when every client and
    /// worker of the queue has release 0.2 or newer; `dueq doctor QUEUE` names live workers that
    /// may be older, if messages of the queue expire or it has a rate or `max_leased`. A queue of
    /// several partitions has no schedules: declare them at a queue of one partition, whose handler
    /// pushes to the other.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if a schedule is refused: the error
    /// names it. Also if the set has a higher revision: then [`Error::code`] is `STALE`. In both cases
    /// nothing was changed, unless another apply came between the calls of this one, which the
    /// error names.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::{MissedPolicy, OverlapPolicy, Schedule};
    /// use std::time::Duration;
    ///
    /// let set = || [
    ///     Schedule::every(Duration::from_millis(500)).name("heartbeat").missed(MissedPolicy::Skip),
    ///     Schedule::every(Duration::from_secs(3_600)).name("sync").overlap(OverlapPolicy::Skip),
    /// ];
    /// assert_eq!(orders.schedules("billing").apply(set()).await?.created.len(), 2);
    /// assert_eq!(orders.schedules("billing").apply(set()).await?.kept.len(), 2);
    /// # });
    /// ```
    pub async fn apply(
        self,
        schedules: impl IntoIterator<Item = Schedule>,
    ) -> Result<ScheduleChanges, Error> {
        let schedules: Vec<_> = schedules.into_iter().collect();
        self.check(&schedules)?;
        // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
        let declaration = Declaration {
            home: self.home,
            set: self.set,
            revision: self.revision,
            prune: self.prune,
            forget: self.forget,
            fire_now: self.fire_now,
            dry_run: self.dry_run,
            recompute: false,
        };
        Box::pin(declaration.apply(schedules)).await
    }

    fn check(&self, schedules: &[Schedule]) -> Result<(), Error> {
        check_set(&self.set)?;
        if let Some(revision) = self.revision.filter(|revision| *revision > MAX_REVISION) {
            return Err(Error::invalid(format!(
                "revision is {revision}, it must be 0 to {MAX_REVISION}"
            )));
        }
        if schedules.len() > MAX_ITEMS {
            return Err(Error::invalid(format!(
                "{} schedules: one call declares up to {MAX_ITEMS}; make several sets of them",
                schedules.len()
            )));
        }
        let mut names = HashSet::new();
        for schedule in schedules {
            check_name(&schedule.name)?;
            if !names.insert(&schedule.name) {
                return Err(Error::invalid(format!(
                    "two schedules of the set {} have the name {:?}",
                    self.set, schedule.name
                )));
            }
            limits::check_payload(&schedule.payload).map_err(|error| of(schedule, &error))?;
        }
        Ok(())
    }
}
