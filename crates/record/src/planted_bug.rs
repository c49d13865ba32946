//! Bugs planted on purpose, to prove that the tests would find them (reliability §5.4).
//!
//! Only with the feature `planted`; without it [`is_active`] is `false` at compile time and nothing of a bug is left. At most
//! one is active at a time: the number in the environment variable `BASCULE_PLANTED`, or the one `set` last.

/// The list. The numbers are part of it: the rig selects a bug by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A commit is answered before the sync.
    AckBeforeSync = 1,
    /// The result of a sync is ignored.
    SyncErrorIgnored = 2,
    /// A failed sync is tried once more, and its success counts.
    SyncRetried = 3,
    /// The directory is not synced after a roll.
    RollNotSynced = 4,
    /// A torn tail is not truncated.
    TailNotCut = 5,
    /// The chain value of a batch is not checked.
    ChainNotChecked = 6,
    /// A header is used although its checksum does not match.
    HeaderChecksumIgnored = 7,
    /// Damage below the durable point is truncated like a torn tail.
    DamageTakenForTornTail = 8,
    /// An index file is used although it does not describe the segment.
    IndexTrusted = 9,
    /// The high watermark of the checkpoint may pass the log end.
    HighWatermarkTrusted = 10,
    /// A follower that begins to verify truncates to its high watermark, whatever the leader answers.
    TruncationToHighWatermark = 11,
    /// Epochs of fetches and answers are not compared, and ends are counted without their links.
    FetchEpochIgnored = 12,
    /// The high watermark counts the committed ISR alone, not the proposed members.
    HighWatermarkOverCommittedIsr = 14,
    /// A member joins the ISR before it has reached the start of the leader epoch.
    GrowthWithoutEpochStart = 15,
    /// Files of another incarnation are taken for those of the log.
    ForeignFilesTaken = 26,
    /// A batch is decompressed whatever its size.
    DecompressionUnbounded = 27,
    /// An ack goes to any subject that a publisher names.
    AckToOtherInbox = 28,
}

/// Whether the bug is active.
#[cfg(not(feature = "planted"))]
#[inline]
pub const fn is_active(_bug: PlantedBug) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use enabled::{is_active, set};

#[cfg(feature = "planted")]
mod enabled {
    use super::PlantedBug;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static ACTIVE: OnceLock<AtomicU32> = OnceLock::new();

    fn active() -> &'static AtomicU32 {
        ACTIVE.get_or_init(|| {
            let number = std::env::var("BASCULE_PLANTED").ok();
            AtomicU32::new(number.and_then(|number| number.parse().ok()).unwrap_or(0))
        })
    }

    /// Whether the bug is active.
    pub fn is_active(bug: PlantedBug) -> bool {
        active().load(Ordering::Relaxed) == bug as u32
    }

    /// Makes the bug with this number the active one; 0 for none.
    pub fn set(number: u32) {
        active().store(number, Ordering::Relaxed);
    }
}
