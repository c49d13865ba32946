//! What is known of the uses of journal files beside their own bytes: that one is missing, or has lost its last frames.
//!
//! The head names the newest use, and those of earlier lives that are still needed; the first preamble of each use names the
//! one before it, and how far that reached. What segments have by now is not needed: its file may be half written over.
use super::format::{Preamble, Reached};
use super::head::{Facts, Head};
use super::mark::{Mark, Marks};
use super::replay::{JournalDamage, JournalPlace, Source};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// What others say of one use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claim {
    /// What lies before was acknowledged, bytes.
    pub acked_to: u64,
    /// Frames have to reach so far, bytes.
    pub reached: u64,
    /// Whether a round of it was synced.
    pub is_begun: bool,
    /// Whether somebody else says how far the last of its rounds reached.
    pub is_ended: bool,
}

impl Claim {
    /// With what the file's own marks say.
    pub fn and(self, marks: Option<&Marks>) -> Self {
        let own = marks.map_or(Mark::default(), |marks| marks.farthest);
        Self {
            acked_to: self.acked_to.max(own.synced.into()),
            reached: self.reached.max(own.written.into()),
            ..self
        }
    }
}

/// What the head and all preambles say.
pub(crate) struct Witness {
    /// What the head says; `None` when nobody can tell which uses are needed.
    facts: Option<Facts>,
    /// How far uses reached, by their sequence numbers.
    reached: BTreeMap<u64, Reached>,
    /// Those with a round that was synced. A start names what it found of others, too.
    begun: HashSet<u64>,
    /// Needed uses that have no file.
    absent: Vec<Reached>,
    /// Whether all uses that have a file tell of the one before.
    is_complete: bool,
    /// Whether the head says something, and all of it.
    is_head_sound: bool,
}

impl Witness {
    /// `sources`: all files.
    pub fn new(head: &Head, sources: &[Source]) -> Self {
        let used = || sources.iter().filter_map(|source| source.preamble);
        let witnessed = || used().filter(Preamble::is_witnessed);
        let before = || witnessed().map(|preamble| preamble.before);
        // Whoever names a use was written behind the head that does.
        let is_old = |facts: &Facts| before().any(|of| of.sequence > facts.newest.sequence);
        let facts = head.facts().filter(|facts| !is_old(facts)).cloned();
        let mut reached: BTreeMap<u64, Reached> = BTreeMap::new();
        let mut begun = HashSet::new();
        let newest = facts.iter().map(|facts| facts.newest);
        begun.extend(newest.filter(|of| of.end > 0).map(|of| of.sequence));
        let of_head = facts
            .iter()
            .flat_map(|facts| facts.kept.iter().chain([&facts.newest]));
        of_head.for_each(|of| name(&mut reached, of));
        for preamble in sources.iter().rev().filter_map(|source| source.preamble) {
            // A file of another directory speaks of others.
            let is_ours = |of: &Reached| is_of(&preamble, of);
            if reached.get(&preamble.sequence).is_none_or(is_ours) {
                name(&mut reached, &preamble.before);
                begun.extend((preamble.before.end > 0).then_some(preamble.before.sequence));
            }
        }
        reached.remove(&0);
        let is_needed = |of: &&Reached| {
            let facts = facts.as_ref();
            facts.is_some_and(|facts| facts.needs(of.sequence))
        };
        let is_absent = |of: &&Reached| used().all(|preamble| !is_of(&preamble, of));
        let needed = reached.values().filter(is_needed);
        Self {
            absent: needed.filter(is_absent).copied().collect(),
            is_complete: used().all(|preamble| preamble.is_witnessed()),
            is_head_sound: !head.is_damaged() && (facts.is_some() || witnessed().next().is_none()),
            facts,
            reached,
            begun,
        }
    }

    /// What the head says; `None` when nobody can tell which uses are needed.
    pub fn facts(&self) -> Option<&Facts> {
        self.facts.as_ref()
    }

    /// Whether segments may not have what the file holds. If not, its damage costs nothing, and may be the beginning of
    /// another use.
    pub fn needs(&self, source: &Source) -> bool {
        match (&self.facts, source.preamble) {
            (None, _) => true,
            (Some(facts), Some(preamble)) => facts.needs(preamble.sequence),
            (Some(_), None) => !self.is_complete || !self.absent.is_empty(),
        }
    }

    /// What is said of a file; `later`: the preamble of the next use with frames.
    pub fn claim(&self, source: &Source, later: Option<&Preamble>) -> Claim {
        let Some(preamble) = source.preamble else {
            let acked_to = if self.absent.is_empty() { 0 } else { u64::MAX };
            return Claim {
                acked_to,
                ..Claim::default()
            };
        };
        let known = self.reached.get(&preamble.sequence);
        let known = known.filter(|of| preamble.is_witnessed() && is_of(&preamble, of));
        let named = known.map_or(0, |of| u64::from(of.end));
        let is_sure = self.facts.is_some() && self.needs(source);
        // A file tells how far rounds in the one before it were synced; of those before that, and of one of which nobody names
        // an end, that all were, within one life. One that was rewritten tells nothing of others.
        let vouches = |later: &&Preamble| {
            let is_further = later.is_witnessed() && later.before.sequence > preamble.sequence;
            is_further || !preamble.is_witnessed()
        };
        let later = later.filter(|later| preamble.life != 0 && later.life == preamble.life);
        let acked_to = later.filter(vouches).map_or(named, |_| u64::MAX);
        Claim {
            acked_to,
            reached: if is_sure { named } else { 0 },
            is_begun: is_sure && named > 0 && self.begun.contains(&preamble.sequence),
            is_ended: later.is_some_and(|later| later.before.sequence == preamble.sequence)
                || self.is_kept(preamble.sequence),
        }
    }

    /// Whether a start has looked at the use before, and knew how far it reached.
    fn is_kept(&self, sequence: u64) -> bool {
        let facts = self.facts.iter();
        let mut kept = facts.flat_map(|facts| &facts.kept);
        kept.any(|of| of.sequence == sequence && of.end > 0)
    }

    /// What is told of the head at `head`, and of files of the journal in `directory` that are not there.
    /// `is_doubtful`: it may be as well that the only file is another directory's, and ours is gone.
    pub fn damages(
        &self,
        head: &Path,
        directory: &Path,
        sources: &[Source],
        is_doubtful: bool,
    ) -> Vec<JournalDamage> {
        let damage = |path: &Path, place| JournalDamage {
            path: path.to_path_buf(),
            position: 0,
            place,
            of: None,
            was_acked: place == JournalPlace::Lost,
        };
        let is_unreadable = |source: &&Source| source.preamble.is_none() && source.is_damaged;
        let unreadable = sources.iter().filter(is_unreadable).count();
        let mut damages = Vec::new();
        if !self.is_head_sound {
            damages.push(damage(head, JournalPlace::Head));
        }
        // A file of which the beginning cannot be read is told as that.
        let absent = self.absent.len() + usize::from(is_doubtful);
        if absent > unreadable {
            let lost = damage(directory, JournalPlace::Lost);
            damages.extend(std::iter::repeat_n(lost, absent));
        }
        damages
    }

    /// Needed uses that have no file.
    pub fn into_absent(self) -> Vec<Reached> {
        self.absent
    }
}

fn name(reached: &mut BTreeMap<u64, Reached>, of: &Reached) {
    let known = reached.entry(of.sequence).or_insert(*of);
    known.end = of.end.max(known.end);
}

/// Whether it is the preamble of that use. One that was rewritten has another checksum.
fn is_of(preamble: &Preamble, of: &Reached) -> bool {
    preamble.sequence == of.sequence && (preamble.link == of.seed || !preamble.is_witnessed())
}
