//! The kinds of events, and how a request fails.
use crate::grpc_status::{Coded, usual_code};
use bascule_wire::ErrorCode;
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::Duration;
use tonic::{Code, Status};

/// One event: `python/bascule/_seam.py` says how each kind crosses the seam.
#[derive(Clone, Debug)]
pub enum Event {
    /// An admin request that wants an answer.
    Request(Request),
    /// An entry of the metadata log is committed.
    Committed {
        /// Log index, from 1.
        index: u64,
        /// The entry.
        entry: Bytes,
        /// Who proposed it; `None` = an earlier run.
        proposal: Option<u64>,
    },
    /// A snapshot of another broker replaces everything up to and including `index`.
    Installed {
        /// Index of the last entry that it covers.
        index: u64,
        /// The state, as another broker stored it.
        state: Bytes,
    },
    /// A proposal was not committed.
    Failed {
        /// The proposal.
        proposal: u64,
        /// Code of the error.
        code: ErrorCode,
        /// One sentence.
        message: String,
    },
    /// Everything committed when a barrier was asked for has been queued before this.
    Barrier {
        /// The barrier.
        id: u64,
        /// Last committed index at the time.
        index: u64,
    },
    /// This broker took the office of the controller, or lost it.
    Office {
        /// Of the metadata group.
        term: u64,
        /// Whether it holds the office.
        held: bool,
    },
    /// The controller has not heard this run of a broker in time.
    Expired {
        /// Number of the broker in the group of voters.
        broker: u64,
        /// Of the run.
        boot_epoch: u64,
    },
    /// To the controller: this run of a broker has stopped every role that an entry up to `index` has ended.
    Stopped {
        /// Number of the broker in the group of voters.
        broker: u64,
        /// Of the run.
        boot_epoch: u64,
        /// Of the entry.
        index: u64,
    },
    /// A partition changed its condition.
    Partition {
        /// The partition.
        incarnation: u64,
        /// Its number in the stream.
        number: u32,
        /// To what.
        change: PartitionChange,
        /// One sentence.
        message: String,
        /// An object.
        fields: Value,
    },
    /// The connection to NATS changed its condition, or an error on it.
    Nats {
        /// What happened.
        change: NatsChange,
        /// One sentence.
        message: String,
        /// An object.
        fields: Value,
        /// How many of this change there were in this run, this one included.
        count: u64,
    },
    /// A line for the log.
    Log {
        /// How much attention it needs.
        level: Level,
        /// Logger, such as `log.recovery`.
        target: String,
        /// One sentence.
        message: String,
        /// An object.
        fields: Value,
    },
}

/// An admin request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Unique in this run.
    pub id: u64,
    /// Protocol and method, such as `liftbridge/CreateStream`.
    pub method: String,
    /// The request message.
    pub body: Bytes,
    /// Who asks.
    pub caller: Caller,
    /// What is left until the caller's deadline; `None` = it set none.
    pub timeout: Option<Duration>,
}

/// Who sent a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// `host:port`; empty = the data plane itself.
    pub address: String,
    /// Name in the certificate; `None` = none was shown.
    pub name: Option<String>,
}

/// Attention that a line of the log needs, as Python numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Level {
    /// Normal operation.
    Info = 20,
    /// Someone should look when there is time.
    Warning = 30,
    /// Someone should act.
    Error = 40,
}

macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }
        impl $name {
            /// As it crosses the seam.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

names! {
    /// A change of a partition.
    PartitionChange {
        /// Its replica here can lead again.
        Able = "able",
        /// What an archive was said to have is more than the log has.
        ArchiveVoid = "archive_void",
        /// Compaction ran.
        Compacted = "compacted",
        /// Compaction failed; it is tried again.
        CompactionFailed = "compaction_failed",
        /// Stored bytes are damaged.
        Damaged = "damaged",
        /// Writes are refused.
        Failed = "failed",
        /// Writes are refused until there is space.
        Full = "full",
        /// Writes are refused until the data key is there.
        KeyUnavailable = "key_unavailable",
        /// An epoch of a sink is in the log, committed and synced.
        Linked = "linked",
        /// A published epoch of a sink waits.
        LinkBlocked = "link_blocked",
        /// Message ids could not be saved.
        MessageIdsNotSaved = "message_ids_not_saved",
        /// Message ids of an earlier run are not known.
        MessageIdsUnknown = "message_ids_unknown",
        /// Recovery found something to do.
        Recovered = "recovered",
        /// The leader cannot do its work: another replica is to lead.
        Resigned = "resigned",
        /// Retention removed records that the archive does not have.
        Unarchived = "unarchived",
        /// Retention removed records that a query had not processed.
        Unread = "unread",
        /// There is space again.
        Writable = "writable",
    }
}

names! {
    /// A change of the connection to NATS.
    NatsChange {
        /// All connections are up.
        Connected = "connected",
        /// A connection is down.
        Disconnected = "disconnected",
        /// Messages arrived faster than they could be stored.
        SlowConsumer = "slow_consumer",
        /// An error of the server, or a message that cannot be stored.
        Error = "error",
    }
}

impl Event {
    /// Bytes that count against the bound of waiting requests.
    pub(super) fn request_bytes(&self) -> Option<usize> {
        match self {
            Self::Request(request) => Some(request.body.len()),
            _ => None,
        }
    }

    /// Answers to the proposer: losing one would leave it waiting.
    pub(super) fn is_never_dropped(&self) -> bool {
        matches!(
            self,
            Self::Committed { .. }
                | Self::Failed { .. }
                | Self::Barrier { .. }
                | Self::Office { .. }
                | Self::Installed { .. }
                | Self::Expired { .. }
                | Self::Stopped { .. }
        )
    }
}

/// A failed admin request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// gRPC status code.
    pub status: i32,
    /// Status message.
    pub message: String,
    /// Code of the error; `None` = the usual one of the status.
    pub code: Option<ErrorCode>,
    /// Values of the message by name: an object.
    pub details: Value,
    /// Status of Iggy's protocol; `None` = the usual one of the gRPC status.
    pub iggy_status: Option<u32>,
}

impl Rejection {
    pub(super) fn new(status: Code, code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            status: status as i32,
            message: message.into(),
            code: Some(code),
            details: json!({}),
            iggy_status: None,
        }
    }

    /// As the call ends.
    pub(crate) fn into_status(self) -> Status {
        let status = Code::from(self.status);
        let code = self.code.unwrap_or_else(|| usual_code(status));
        Status::new(status, self.message).detailed(code, self.details)
    }
}
