//! How often the random client makes each call.

use crate::model::client::driver::{Driver, NODES};
use crate::model::client::operation::{Operation, Presence};
use crate::model::message::Due;
use crate::model::world::{CENTURY_MS, World};
use crate::reply::Text;

impl Driver {
    pub(crate) fn choose(&mut self, world: &World) -> Operation {
        if self.plain && self.chance(10) {
            return self.plan_of_a_plain_run(world);
        }
        if self.has_map && self.chance(if world.map.is_none() { 20 } else { 4 }) {
            return self.remap(world);
        }
        if self.of_schedules > 0 && self.chance(self.of_schedules) {
            return self.schedule_call(world);
        }
        let has_layout_3 = world.has_layout_3 || !self.may_have_layout_3;
        if !has_layout_3 && self.calls > 200 && self.chance(2) {
            return Operation::Configure(vec![("layout", 3_u64.into())]);
        }
        if self.chance(5) {
            return match self.random.u32(0..13) {
                0..4 => self.plan_windows(),
                4..8 => self.plan_next(world),
                8..10 => self.plan_a_follow_up(),
                10..12 => self.plan_a_debounce(),
                _ => self.plan_revivals(world),
            };
        }
        match self.random.u32(0..1_000) {
            0..10 => self.plan_a_repeated_push(),
            10..200 => self.push(),
            200..300 => {
                if self.chance(10) {
                    let claim = self.claim();
                    self.plan([claim]);
                    self.set_back = Some((self.planned.len(), self.random.u64(0..400_000)));
                }
                Operation::Promote(self.limit())
            }
            300..400 => self.claim(),
            400..430 => Operation::Ack(self.holds(world)),
            430..440 => {
                let (hold, known) = (self.holds(world).swap_remove(0), self.remembered(world));
                let mut call = self.ack_push(hold);
                if let Operation::AckPush { items, .. } = &mut call {
                    items[0].id = known;
                }
                call
            }
            440..460 => {
                let holds = self.holds(world);
                let due = |driver: &mut Self| match driver.chance(40) {
                    true => Due::In(3_600_000), // later than most expiries
                    false => driver.due(),
                };
                Operation::Snooze(holds.into_iter().map(|hold| (hold, due(self))).collect())
            }
            460..464 => Operation::Throttle(
                self.holds(world)
                    .into_iter()
                    .map(|hold| (hold, self.pick(&[0, 1, 50, 50, 700, 2_000_000])))
                    .collect(),
            ),
            464 => Operation::Close(self.pick(&[1, 300, 2_000_000])),
            465..475 => {
                let holds = self.holds(world);
                Operation::Again(holds.into_iter().map(|hold| (hold, self.due())).collect())
            }
            475..525 => {
                let far = self.chance(20).then_some(3_600_000); // later than most expiries
                let retry = |hold, random: &mut Self| {
                    let after = random.delay();
                    (hold, far.unwrap_or(after), random.bytes(3))
                };
                let holds = self.holds(world);
                Operation::Retry(holds.into_iter().map(|hold| retry(hold, self)).collect())
            }
            525..550 if self.chance(10) => self.plan_a_release_in_the_past(),
            525..550 => Operation::Release(self.holds(world)),
            550..570 => {
                let holds = self.holds(world);
                Operation::Bury(
                    holds
                        .into_iter()
                        .map(|hold| (hold, self.bytes(2)))
                        .collect(),
                )
            }
            570..600 => {
                let holds = self.holds(world);
                Operation::Extend(holds.into_iter().map(|hold| (hold, self.lease())).collect())
            }
            600..605 => self.plan_crashes(),
            605..615 => Operation::EndLeases(self.holds(world)),
            615..690 => Operation::Reap(self.limit()),
            690..700 => self.plan_a_repeated_cancel(),
            700..735 => Operation::Cancel {
                dead: self.chance(40),
                since: None,
                ids: self.ids(),
            },
            735..775 => {
                let ids = self.ids();
                Operation::Reschedule(
                    ids.into_iter()
                        .map(|id| self.reschedule(world, id))
                        .collect(),
                )
            }
            775..795 => Operation::RunNow(self.ids()),
            795..810 => Operation::RequeueIds(self.ids()),
            810..825 => {
                let before = self
                    .chance(40)
                    .then(|| self.now.floor() - self.random.u64(0..20_000));
                Operation::RequeueOldest {
                    limit: self.limit(),
                    before,
                }
            }
            825..831 => Operation::Purge {
                state: self.pick(&["scheduled", "ready", "dead"]),
                limit: self.limit(),
            },
            831..834 => Operation::Pause(None),
            834..837 => Operation::Pause(Some(self.pick(&[1, 700, 700, 3_000, CENTURY_MS]))),
            837..850 => Operation::Resume,
            850..940 => Operation::Beat {
                node: self.pick(&NODES).into(),
                presence: match self.random.u32(0..10) {
                    0 => Presence::Leave,
                    1 => Presence::Park(self.pick(&[1_000, 2_500, 4_000, 60_000])),
                    _ => Presence::Stay,
                },
            },
            940..950 => Operation::Configure(self.limits()),
            950..970 => self.peek(world),
            970..992 => Operation::Get(self.remembered(world)),
            992..994 => self.dues(world),
            994..997 => self.held(world),
            _ => Operation::Stats,
        }
    }

    /// An id, often one that the deduplication memory knows.
    fn remembered(&mut self, world: &World) -> Text {
        let outcome = |name: &Text| name.0.first().is_some_and(|byte| *byte == 5 || *byte >= 32);
        let known: Vec<Text> = world
            .recent
            .keys()
            .filter(|name| outcome(name))
            .cloned()
            .collect();
        match self.random.choice(known) {
            Some(name) if self.chance(60) => match name.0.strip_prefix(b"\x05") {
                Some(id) => Text(id.to_vec()),
                None => name,
            },
            _ => self.id(),
        }
    }
}
