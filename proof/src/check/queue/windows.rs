//! Judges that a window prevented a second message of an id. Ids with windows are in the queue of
//! the schedules, where no process cancels or purges, which would end a window.

use crate::check::collect::Collection;
use crate::check::verdict::{Kind, Verdict};
use crate::history::Call;

/// A push with a window that stored a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Windowed {
    pub(crate) id: u32,
    pub(crate) epoch: u16,
    pub(crate) seq: u64,
    pub(crate) now_ms: u64,
    /// The end of the window by the server's clock.
    pub(crate) until_ms: u64,
}

/// The window that this call asks for, for the id.
pub(crate) fn window_of(call: &Call, id: &str) -> Option<u64> {
    let Call::Push { items, .. } = call else {
        return None;
    };
    let item = items.iter().find(|item| item.0 == id)?;
    let mut words = item.4.split(' ');
    words.find_map(|word| word.strip_prefix("window=")?.parse().ok())
}

pub(crate) fn judge(all: &mut Collection, verdict: &mut Verdict) {
    let mut pushes = std::mem::take(&mut all.windowed);
    pushes.retain(|push| !all.epochs[usize::from(push.epoch)].is_void(push.seq));
    pushes.sort_unstable_by_key(|push| (push.id, push.epoch, push.seq));
    verdict.windows.created = pushes.len() as u64;
    for pair in pushes.windows(2) {
        let [first, second] = pair else {
            continue;
        };
        let same = (first.id, first.epoch) == (second.id, second.epoch);
        // If the clock was set back, a window lasts longer, unless it had already ended.
        if same && second.now_ms < first.until_ms && !has_ended(all, first, second) {
            verdict.found(Kind::SecondCreatedInWindow, || {
                let id = all.name_of(first.id);
                format!(
                    "{id}: seq {} at {} ms, although the window of seq {} lasts until {} ms",
                    second.seq, second.now_ms, first.seq, first.until_ms
                )
            });
        }
    }
}

/// Whether an answer between the two pushes shows that the first window had ended, and that the
/// clock was set back only after that.
fn has_ended(all: &Collection, first: &Windowed, second: &Windowed) -> bool {
    let replies = &all.replies[usize::from(first.epoch)];
    let place = |seq| replies.partition_point(|reply| reply.seq < seq);
    let between = replies.get(place(first.seq)..place(second.seq));
    let mut between = between.into_iter().flatten();
    between.any(|reply| reply.now_us / 1_000 >= first.until_ms)
}
