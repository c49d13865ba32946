//! Fetch sessions: a frame between two brokers names only the partitions whose values changed.
//!
//! A session belongs to one connection, and each of its frames has the next sequence. A frame of an earlier connection, a
//! lost one or a repeated one is therefore never counted (N17): the server forgets the session, answers with 0, and the
//! follower opens a new one with every partition.
use std::collections::BTreeMap;

/// One frame. `S` is what a follower reports of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame<S> {
    /// 0 = open a session.
    pub session: u64,
    /// 1 for the frame that opens, then one more each.
    pub sequence: u64,
    /// Slots that are new or whose values differ from the last frame.
    pub changed: Vec<(u32, S)>,
    /// Slots that are not fetched any more.
    pub dropped: Vec<u32>,
}

/// The follower's end of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client<S> {
    session: u64,
    sequence: u64,
    opening: bool,
    sent: BTreeMap<u32, S>,
}

impl<S> Default for Client<S> {
    fn default() -> Self {
        Self {
            session: 0,
            sequence: 0,
            opening: false,
            sent: BTreeMap::new(),
        }
    }
}

impl<S: Clone + Eq> Client<S> {
    /// The next frame for these values; `None` while the answer to the frame that opens the session is outstanding.
    pub fn frame(&mut self, slots: &BTreeMap<u32, S>) -> Option<Frame<S>> {
        if self.opening {
            return None;
        }
        self.opening = self.session == 0;
        self.sequence = self.sequence.saturating_add(1);
        let differs = |(slot, value): &(&u32, &S)| self.sent.get(*slot) != Some(*value);
        let changed = slots
            .iter()
            .filter(differs)
            .map(|(&slot, value)| (slot, value.clone()))
            .collect();
        let dropped = self
            .sent
            .keys()
            .copied()
            .filter(|slot| !slots.contains_key(slot))
            .collect();
        self.sent.clone_from(slots);
        Some(Frame {
            session: self.session,
            sequence: self.sequence,
            changed,
            dropped,
        })
    }

    /// Takes the session of an answer. Returns false if the session has ended: the answer says nothing, and the next frame
    /// opens a new one.
    pub fn answered(&mut self, session: u64) -> bool {
        if session != 0 && (self.opening || session == self.session) {
            (self.session, self.opening) = (session, false);
            return true;
        }
        *self = Self::default();
        false
    }
}

/// The leader's end of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server<S> {
    session: u64,
    sequence: u64,
    slots: BTreeMap<u32, S>,
}

impl<S> Default for Server<S> {
    fn default() -> Self {
        Self {
            session: 0,
            sequence: 0,
            slots: BTreeMap::new(),
        }
    }
}

impl<S: Clone> Server<S> {
    /// Takes a frame and returns the session of the answer; 0 if the frame does not continue the session, and then nothing
    /// of it may be used. `fresh` names a session that this frame may open: ≥ 1, never given before in this run.
    pub fn receive(&mut self, frame: &Frame<S>, fresh: u64) -> u64 {
        let opens =
            frame.session == 0 && frame.sequence == 1 && frame.dropped.is_empty() && fresh > 0;
        let continues = self.session > 0
            && frame.session == self.session
            && frame.sequence == self.sequence.saturating_add(1);
        if opens {
            *self = Self {
                session: fresh,
                ..Self::default()
            };
        } else if !continues
            || frame
                .dropped
                .iter()
                .any(|slot| !self.slots.contains_key(slot))
        {
            *self = Self::default();
            return 0;
        }
        self.sequence = frame.sequence;
        for slot in &frame.dropped {
            self.slots.remove(slot);
        }
        self.slots.extend(frame.changed.iter().cloned());
        self.session
    }

    /// The values of all slots, those that the last frame did not name included.
    pub fn slots(&self) -> &BTreeMap<u32, S> {
        &self.slots
    }
}
