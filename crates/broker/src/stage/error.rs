//! Why rows are not staged.
use super::rules::VoidReason;
use bascule_wire::ErrorCode;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;

/// Why a call that stages ends; nothing of it is stored then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// The table did not become as new as the call in time.
    #[error("generation {generation} of sink {sink} is not known here yet: try again")]
    Unknown {
        /// Id of the record.
        sink: u64,
        /// As the call says.
        generation: u64,
    },
    /// The epoch cannot be published under that name any more.
    #[error("rows of epoch {epoch} are not staged to sink {name}: {}", why(reason))]
    Void {
        /// `namespace/name`, or the id of a record that is gone.
        name: String,
        /// As the call says.
        epoch: u64,
        /// Why.
        reason: VoidReason,
    },
    /// Somebody else opened it.
    #[error("sink {name} belongs to {}", owner_text(owner))]
    NotOwned {
        /// `namespace/name`.
        name: String,
        /// Who.
        owner: String,
    },
    /// The same task attempt stages right now.
    #[error(
        "attempt {attempt} of task {task} stages to this stream already: each call needs an attempt of its own"
    )]
    InUse {
        /// The task.
        task: u32,
        /// Its attempt.
        attempt: u64,
    },
    /// Another call of this name staged other rows.
    #[error(
        "attempt {attempt} of task {task} has staged other rows: each call needs an attempt of its own"
    )]
    Different {
        /// The task.
        task: u32,
        /// Its attempt.
        attempt: u64,
    },
    /// More than may be staged.
    #[error(
        "{what} needs {needed} bytes of staged rows with this call, and its quota is {quota}: {remedy}"
    )]
    Quota {
        /// The sink, or the broker.
        what: String,
        /// With this call, bytes.
        needed: u64,
        /// Most, bytes.
        quota: u64,
        /// Who can do what.
        remedy: &'static str,
    },
    /// More pieces than may be staged.
    #[error(
        "sink {name} has {limit} pieces staged, which is the most: write with fewer tasks or to fewer partitions"
    )]
    Pieces {
        /// `namespace/name`.
        name: String,
        /// Most.
        limit: u64,
    },
    /// More rows for one partition than an epoch may have, or more partitions.
    #[error("{what} of one epoch are more than {limit}: {remedy}")]
    TooMany {
        /// Rows for a partition, or partitions.
        what: String,
        /// Most.
        limit: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// The partition went with its stream.
    #[error("partition {partition} was deleted meanwhile")]
    Deleted {
        /// Number.
        partition: u32,
    },
    /// A piece cannot be encrypted.
    #[error("rows for partition {partition} cannot be encrypted: {reason}")]
    Encryption {
        /// Number.
        partition: u32,
        /// Why not.
        reason: String,
    },
    /// No space is left.
    #[error("no space is left to stage rows")]
    Full,
    /// The operating system's.
    #[error("{} could not be {what}: {source}", path.display())]
    Io {
        /// `written`, `synced` …
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A piece that is there already cannot be compared.
    #[error(transparent)]
    Piece(#[from] super::PieceFault),
}

impl StageError {
    /// The failure of one step.
    pub(super) fn io(what: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        let is_full = matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        );
        if is_full {
            return Self::Full;
        }
        Self::Io {
            what,
            path: path.to_owned(),
            source,
        }
    }

    /// Its code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Unknown { .. } => ErrorCode::Unavailable,
            Self::Void { reason, .. } => match reason {
                VoidReason::Gone => ErrorCode::SinkNotFound,
                VoidReason::Fenced { .. } => ErrorCode::SinkFenced,
                VoidReason::Published { .. } => ErrorCode::SinkPublished,
                VoidReason::Expired => ErrorCode::SinkExpired,
            },
            Self::NotOwned { .. } => ErrorCode::SinkNotOwned,
            Self::InUse { .. } => ErrorCode::Busy,
            Self::Different { .. } => ErrorCode::SinkConflict,
            Self::Quota { .. } | Self::Pieces { .. } => ErrorCode::SinkQuota,
            Self::TooMany { .. } => ErrorCode::InvalidArgument,
            Self::Deleted { .. } => ErrorCode::StreamNotFound,
            Self::Encryption { .. } => ErrorCode::EncryptionKeyMissing,
            Self::Full => ErrorCode::DiskFull,
            Self::Io { .. } | Self::Piece(_) => ErrorCode::StageFailed,
        }
    }

    /// Values of the sentence by name: an object.
    pub fn details(&self) -> Value {
        match self {
            Self::Quota { needed, quota, .. } => json!({"bytes": needed, "quota": quota}),
            Self::Pieces { limit, .. } | Self::TooMany { limit, .. } => json!({"limit": limit}),
            Self::Void { reason, .. } => match reason {
                VoidReason::Fenced { generation } => json!({"generation": generation}),
                VoidReason::Published { epoch } => json!({"epoch": epoch}),
                VoidReason::Gone | VoidReason::Expired => json!({}),
            },
            _ => json!({}),
        }
    }
}

fn why(reason: &VoidReason) -> String {
    match reason {
        VoidReason::Gone => "the sink was deleted".to_owned(),
        VoidReason::Fenced { generation } => {
            format!("a newer run or query writes to it (generation {generation})")
        }
        VoidReason::Published { epoch } => format!("epoch {epoch} is published"),
        VoidReason::Expired => {
            "this attempt of the epoch expired or was aborted: run the epoch again".to_owned()
        }
    }
}

fn owner_text(owner: &str) -> &str {
    if owner.is_empty() {
        "a client without a certificate"
    } else {
        owner
    }
}
