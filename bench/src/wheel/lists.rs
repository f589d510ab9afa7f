//! Linked lists of timers in one slab, for the classic structures.

/// No timer.
const NONE: u32 = u32::MAX;

pub(super) struct Timer<T> {
    pub(super) when: u64,
    /// For a ring with rounds: how often the hand must still pass.
    pub(super) rounds: u64,
    /// `None` in a free node.
    value: Option<T>,
    list: u32,
    previous: u32,
    next: u32,
}

/// Any number of doubly linked lists.
pub(super) struct Lists<T> {
    timers: Vec<Timer<T>>,
    heads: Vec<u32>,
    free: u32,
}

impl<T> Lists<T> {
    pub(super) fn new(lists: usize) -> Self {
        Self {
            timers: Vec::new(),
            heads: vec![NONE; lists],
            free: NONE,
        }
    }

    pub(super) fn add_lists(&mut self, lists: usize) {
        self.heads.resize(self.heads.len() + lists, NONE);
    }

    /// Stores a timer in no list.
    pub(super) fn store(&mut self, when: u64, value: T) -> u32 {
        let timer = Timer {
            when,
            rounds: 0,
            value: Some(value),
            list: NONE,
            previous: NONE,
            next: NONE,
        };
        let index = self.free;
        if let Some(free) = self.timers.get_mut(index as usize) {
            self.free = free.next;
            *free = timer;
            return index;
        }
        self.timers.push(timer);
        (self.timers.len() - 1) as u32
    }

    pub(super) fn timer(&mut self, index: u32) -> &mut Timer<T> {
        &mut self.timers[index as usize]
    }

    pub(super) fn push(&mut self, list: usize, index: u32) {
        let head = std::mem::replace(&mut self.heads[list], index);
        let timer = &mut self.timers[index as usize];
        (timer.list, timer.previous, timer.next) = (list as u32, NONE, head);
        if head != NONE {
            self.timers[head as usize].previous = index;
        }
    }

    /// Removes a timer from its list.
    pub(super) fn unlink(&mut self, index: u32) {
        let Timer {
            list,
            previous,
            next,
            ..
        } = self.timers[index as usize];
        match previous {
            NONE => self.heads[list as usize] = next,
            previous => self.timers[previous as usize].next = next,
        }
        if next != NONE {
            self.timers[next as usize].previous = previous;
        }
    }

    /// Takes a whole list, to iterate with [`following`](Self::following).
    pub(super) fn detach(&mut self, list: usize) -> Option<u32> {
        let head = std::mem::replace(&mut self.heads[list], NONE);
        (head != NONE).then_some(head)
    }

    pub(super) fn first(&self, list: usize) -> Option<u32> {
        let head = self.heads[list];
        (head != NONE).then_some(head)
    }

    pub(super) fn following(&self, index: u32) -> Option<u32> {
        let next = self.timers[index as usize].next;
        (next != NONE).then_some(next)
    }

    /// Frees an unlinked timer.
    pub(super) fn take(&mut self, index: u32) -> Option<T> {
        let timer = &mut self.timers[index as usize];
        let value = timer.value.take();
        timer.next = self.free;
        self.free = index;
        value
    }
}
