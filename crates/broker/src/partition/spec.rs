//! Partition specs as they cross the seam (`specs/formats/seam.md`).
use crate::encryption::{DataKeySpec, MasterKeyStore};
use crate::names::{CURSORS, DEFAULT_NAMESPACE};
use bascule_log::{
    ArchiveWait, Compaction, CompactionKeyFn, Durability, LogId, LogOptions, Retention,
};
use bascule_record::{BatchLimits, Codec};
use bascule_wire::liftbridge::cursors;
use serde::Deserialize;
use std::time::Duration;

const NANOS_PER_MILLI: u64 = 1_000_000;
/// Used when the interval is 0, as Liftbridge does.
const DEFAULT_CLEANER_INTERVAL: Duration = Duration::from_mins(5);
/// The active segment is written ahead in steps of this, or of the segment size when that is smaller.
const PREALLOCATE_BYTES: u64 = 16 << 20;

/// What a partition is and how it behaves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct PartitionSpec {
    pub namespace: String,
    pub stream: String,
    pub number: u32,
    pub incarnation: u64,
    pub subject: String,
    pub base_subject: String,
    #[serde(default)]
    pub queue_group: String,
    pub durability: DurabilityName,
    pub codec: CodecName,
    #[serde(default)]
    pub nats_copy: NatsCopy,
    #[serde(default)]
    pub nats_acks: NatsAcks,
    pub max_record_bytes: u32,
    pub batch_records: usize,
    pub batch_bytes: usize,
    pub retention_age_ms: u64,
    pub retention_bytes: u64,
    pub retention_messages: u64,
    pub cleaner_interval_ms: u64,
    pub segment_bytes: u64,
    pub segment_age_ms: u64,
    /// Nothing is removed by retention before this broker has had it for so long.
    #[serde(default)]
    pub retention_min_age_ms: u64,
    /// Keep only the last record of each key.
    #[serde(default)]
    pub compact: bool,
    #[serde(default = "default_tombstone_ms")]
    pub compact_tombstone_ms: u64,
    #[serde(default = "default_compact_memory")]
    pub compact_memory_bytes: u64,
    /// 0 = no limit.
    #[serde(default = "default_compact_rate")]
    pub compact_bytes_per_second: u64,
    /// Retention waits for an archive until the partition has so many bytes; 0 = it does not wait.
    #[serde(default)]
    pub archive_wait_bytes: u64,
    /// An archive has everything below.
    #[serde(default)]
    pub archived_to: u64,
    /// Queries may hold records until the partition has so many bytes; 0 = they may not.
    #[serde(default)]
    pub hold_bytes: u64,
    /// How long a hold counts without another report.
    #[serde(default)]
    pub hold_ms: u32,
    /// Everything below was trimmed on request.
    #[serde(default)]
    pub trimmed_to: u64,
    #[serde(default)]
    pub concurrency_control: bool,
    #[serde(default)]
    pub readonly: bool,
    #[serde(default)]
    pub subject_partitions: u32,
    /// Appends are refused while fewer replicas are in sync.
    #[serde(default = "one")]
    pub min_isr: u32,
    #[serde(default = "one")]
    pub in_sync: u32,
    /// How many brokers have it; with more than one the metadata gives it a role.
    #[serde(default = "one")]
    pub replicas: u32,
    #[serde(default)]
    pub data_keys: Vec<DataKeySpec>,
}

fn one() -> u32 {
    1
}

/// `disk` or `memory`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DurabilityName {
    Disk,
    Memory,
}

/// `none`, `lz4` or `zstd`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum CodecName {
    None,
    Lz4,
    Zstd,
}

/// What goes out on NATS after a direct publish was committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NatsCopy {
    /// A Publish envelope with ack policy NONE.
    #[default]
    Envelope,
    /// The bare value.
    Value,
    /// Nothing.
    None,
}

/// How plain NATS messages are acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NatsAcks {
    /// Not at all.
    #[default]
    Off,
    /// As JetStream does.
    Jetstream,
}

impl PartitionSpec {
    /// Which log it is.
    pub fn log_identity(&self) -> LogId {
        LogId {
            incarnation: self.incarnation,
            partition: self.number,
        }
    }

    /// How its log is opened, with the data keys that `master_keys` unwrap.
    pub fn log_options(&self, master_keys: &MasterKeyStore) -> LogOptions {
        LogOptions {
            durability: match self.durability {
                DurabilityName::Disk => Durability::Disk,
                DurabilityName::Memory => Durability::Memory,
            },
            segment_bytes: self.segment_bytes,
            segment_age_ns: nanos(self.segment_age_ms),
            preallocate_bytes: PREALLOCATE_BYTES.min(self.segment_bytes),
            codec: self.codec(),
            keys: master_keys.ring(&self.data_keys),
        }
    }

    /// What may be removed.
    pub fn retention(&self) -> Retention {
        Retention {
            age_ns: nanos(self.retention_age_ms),
            bytes: self.retention_bytes,
            messages: self.retention_messages,
            min_age_ns: nanos(self.retention_min_age_ms),
            archive: (self.archive_wait_bytes > 0).then_some(ArchiveWait {
                archived_to: self.archived_to,
                max_bytes: self.archive_wait_bytes,
            }),
            hold: None,
        }
    }

    /// How it is compacted, when it is.
    pub fn compaction(&self) -> Option<Compaction> {
        self.compact.then(|| Compaction {
            tombstone_grace_ns: nanos(self.compact_tombstone_ms),
            map_bytes: usize::try_from(self.compact_memory_bytes).unwrap_or(usize::MAX),
            bytes_per_second: self.compact_bytes_per_second,
            key_fn: (self.namespace == DEFAULT_NAMESPACE && self.stream == CURSORS)
                .then_some(cursors::compaction_key as CompactionKeyFn),
            ..Compaction::default()
        })
    }

    /// Compression of new batches.
    pub fn codec(&self) -> Codec {
        match self.codec {
            CodecName::None => Codec::None,
            CodecName::Lz4 => Codec::Lz4,
            CodecName::Zstd => Codec::Zstd,
        }
    }

    /// Where batches close.
    pub fn batch_limits(&self) -> BatchLimits {
        BatchLimits {
            records: self.batch_records.max(1),
            bytes: self.batch_bytes.max(1),
            ..BatchLimits::default()
        }
    }

    /// How often retention runs.
    pub fn cleaner_interval(&self) -> Duration {
        match self.cleaner_interval_ms {
            0 => DEFAULT_CLEANER_INTERVAL,
            ms => Duration::from_millis(ms),
        }
    }
}

fn default_tombstone_ms() -> u64 {
    (Compaction::default().tombstone_grace_ns / NANOS_PER_MILLI as i64) as u64
}

fn default_compact_memory() -> u64 {
    Compaction::default().map_bytes as u64
}

fn default_compact_rate() -> u64 {
    Compaction::default().bytes_per_second
}

fn nanos(ms: u64) -> i64 {
    i64::try_from(ms.saturating_mul(NANOS_PER_MILLI)).unwrap_or(i64::MAX)
}
