//! Messages from NATS that were meant for a partition and are not stored, by the reason.
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a message is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// They came faster than they could be appended.
    Overload,
    /// The partition is paused.
    Paused,
    /// The partition is read-only.
    Readonly,
    /// No space is left on the data directory.
    Full,
    /// The message is larger than the stream's largest record.
    TooLarge,
    /// Its subject or reply is not UTF-8, or it has too many headers.
    Invalid,
    /// Everything else: the partition reports why.
    Other,
}

impl Loss {
    const ALL: [Self; 7] = [
        Self::Overload,
        Self::Paused,
        Self::Readonly,
        Self::Full,
        Self::TooLarge,
        Self::Invalid,
        Self::Other,
    ];

    /// The text about the partition.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::Overload => "is slower than its publishers",
            Self::Paused => "is paused",
            Self::Readonly => "is read-only",
            Self::Full => "has no space left on the data directory",
            Self::TooLarge => "takes no message of that size",
            Self::Invalid => "cannot store such a message",
            Self::Other => "refuses appends",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Paused => "paused",
            Self::Readonly => "readonly",
            Self::Full => "full",
            Self::TooLarge => "too_large",
            Self::Invalid => "invalid",
            Self::Other => "other",
        }
    }
}

/// The counters of one partition.
#[derive(Debug, Default)]
pub(crate) struct Losses([AtomicU64; Loss::ALL.len()]);

impl Losses {
    pub(crate) fn add(&self, loss: Loss, messages: u64) {
        if let Some(counter) = self.0.get(loss as usize) {
            counter.fetch_add(messages, Ordering::Relaxed);
        }
    }

    /// Reason to count, all of them.
    pub(crate) fn to_json(&self) -> Value {
        let counts = Loss::ALL.iter().zip(&self.0).map(|(loss, counter)| {
            (
                loss.name().to_owned(),
                counter.load(Ordering::Relaxed).into(),
            )
        });
        Value::Object(counts.collect::<Map<_, _>>())
    }
}
