//! What the replies about schedules promise, over a whole run.

use anyhow::{Result, ensure};

use crate::model::history::{History, Life};
use crate::model::schedule_calls::Declaration;
use crate::model::world::Now;
use crate::reply::{Reply, Text};
use crate::state::State;

impl History {
    /// A claim granted a tick that nobody triggered: it made the tick.
    pub(super) fn fired(&mut self, id: &Text, payload: &Text, due: u64) -> Result<()> {
        ensure!(
            self.fired.insert(id.clone()),
            "{id:?}: a fire made two ticks"
        );
        let nominal = id
            .text()
            .split_once('@')
            .and_then(|(_, at)| at.parse().ok());
        ensure!(
            nominal.is_some_and(|nominal: u64| due >= nominal),
            "{id:?}: due at {due}, before its fire"
        );
        self.begin(id.clone(), payload.clone(), due);
        Ok(())
    }

    fn begin(&mut self, id: Text, payload: Text, due: u64) {
        let life = Life {
            payload,
            due,
            claim: None,
            next: None,
        };
        self.lives.insert(id, life);
    }

    pub(super) fn triggered(&mut self, now: Now, reply: &Reply, after: &State) -> Result<()> {
        // It may have replaced other ticks.
        self.lives.retain(|id, _| after.messages.contains_key(id));
        let Ok(answers) = reply.items() else {
            return Ok(());
        };
        let created = answers
            .iter()
            .filter_map(|text| text.strip_prefix("CREATED "));
        for id in created.map(Text::from) {
            ensure!(
                !self.lives.contains_key(&id),
                "{id:?}: triggered while it existed"
            );
            let payload = after.messages.get(&id).cloned().unwrap_or_default();
            self.begin(id, payload, now.floor());
        }
        Ok(())
    }

    pub(super) fn declared(
        &mut self,
        now: Now,
        call: &Declaration,
        reply: &Reply,
        after: &State,
    ) -> Result<()> {
        if call.dry_run || reply.part(1)?.text()? != "OK" {
            return Ok(());
        }
        for (schedule, answer) in call.schedules.iter().zip(reply.part(2)?.list()?) {
            let id = Text::from(schedule.tick(now.floor()));
            let is_created = answer.text()?.starts_with("CREATED");
            if call.now && is_created && !self.lives.contains_key(&id) {
                ensure!(after.messages.contains_key(&id), "{id:?}: no tick at once");
                self.begin(id, schedule.payload.clone(), now.floor());
            }
        }
        for name in reply.part(3)?.list()? {
            self.forget_fires(&name.text()?);
        }
        Ok(())
    }

    /// A new schedule of this name knows nothing of the former one.
    pub(super) fn forget_fires(&mut self, name: &str) {
        let of_it = format!("{name}@");
        self.fired.retain(|id| !id.text().starts_with(&of_it));
    }
}
