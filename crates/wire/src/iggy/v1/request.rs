//! Poll, flush and the commands of stored offsets; names of all commands.
use super::identifiers::{Consumer, Identifier, Strategy, given_partition, partition};
use crate::iggy::frame::{REPLY_HEAD_BYTES, write_reply_head};
use crate::iggy::reader::{Reader, whole};
use crate::iggy::{Generation, Malformed};
use std::num::NonZeroU32;

/// `POLL_MESSAGES`, 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll<'a> {
    /// Who polls.
    pub consumer: Consumer<'a>,
    /// Stream.
    pub stream: Identifier<'a>,
    /// Topic.
    pub topic: Identifier<'a>,
    /// Partition from 1; none = the first, or the group's choice.
    pub partition: Option<NonZeroU32>,
    /// Where to start.
    pub strategy: Strategy,
    /// Most messages; 0 is to be refused.
    pub count: u32,
    /// Whether the last offset returned is stored for the consumer.
    pub auto_commit: bool,
}
impl<'a> Poll<'a> {
    /// Number of the command.
    pub const CODE: u32 = 100;

    /// Reads a whole payload.
    pub fn read(payload: &'a [u8], generation: Generation) -> Result<Self, Malformed> {
        whole(payload, generation, |from| {
            Ok(Self {
                consumer: Consumer::read(from)?,
                stream: Identifier::read(from, "the stream")?,
                topic: Identifier::read(from, "the topic")?,
                partition: partition(from)?,
                strategy: Strategy::read(from)?,
                count: from.u32("the count")?,
                auto_commit: from.flag("auto-commit")?,
            })
        })
    }
}

/// `FLUSH_UNSAVED_BUFFER`, 102.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush<'a> {
    /// Stream.
    pub stream: Identifier<'a>,
    /// Topic.
    pub topic: Identifier<'a>,
    /// Partition from 1.
    pub partition: Option<NonZeroU32>,
    /// Whether to sync as well.
    pub fsync: bool,
}
impl<'a> Flush<'a> {
    /// Number of the command.
    pub const CODE: u32 = 102;

    /// Reads a whole payload.
    pub fn read(payload: &'a [u8], generation: Generation) -> Result<Self, Malformed> {
        whole(payload, generation, |from| {
            Ok(Self {
                stream: Identifier::read(from, "the stream")?,
                topic: Identifier::read(from, "the topic")?,
                partition: flushed(from)?,
                fsync: from.flag("fsync")?,
            })
        })
    }
}

/// The partition of a flush has no flag in any generation.
fn flushed(from: &mut Reader<'_>) -> Result<Option<NonZeroU32>, Malformed> {
    if from.generation().has_partition_flag() {
        return given_partition(from).map(Some);
    }
    partition(from)
}

/// `GET_CONSUMER_OFFSET`, 120.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetOffset<'a> {
    /// Whose.
    pub consumer: Consumer<'a>,
    /// Stream.
    pub stream: Identifier<'a>,
    /// Topic.
    pub topic: Identifier<'a>,
    /// Partition from 1; none = the first, or the one the member polled last.
    pub partition: Option<NonZeroU32>,
}
impl<'a> GetOffset<'a> {
    /// Number of the command.
    pub const CODE: u32 = 120;

    /// Reads a whole payload.
    pub fn read(payload: &'a [u8], generation: Generation) -> Result<Self, Malformed> {
        whole(payload, generation, Self::fields)
    }

    fn fields(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            consumer: Consumer::read(from)?,
            stream: Identifier::read(from, "the stream")?,
            topic: Identifier::read(from, "the topic")?,
            partition: partition(from)?,
        })
    }
}

/// `STORE_CONSUMER_OFFSET`, 121.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOffset<'a> {
    /// Whose, and where.
    pub position: GetOffset<'a>,
    /// Offset of the last message that was handled.
    pub offset: u64,
    /// Whether the client waits until it is stored; v1 and v1b always do.
    pub waits: bool,
}
impl<'a> StoreOffset<'a> {
    /// Number of the command.
    pub const CODE: u32 = 121;

    /// Reads a whole payload.
    pub fn read(payload: &'a [u8], generation: Generation) -> Result<Self, Malformed> {
        whole(payload, generation, |from| {
            Ok(Self {
                position: GetOffset::fields(from)?,
                offset: from.u64("the offset")?,
                waits: waits(from)?,
            })
        })
    }
}

/// `DELETE_CONSUMER_OFFSET`, 122.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteOffset<'a> {
    /// Whose, and where.
    pub position: GetOffset<'a>,
    /// Whether the client waits until it is gone; v1 and v1b always do.
    pub waits: bool,
}
impl<'a> DeleteOffset<'a> {
    /// Number of the command.
    pub const CODE: u32 = 122;

    /// Reads a whole payload.
    pub fn read(payload: &'a [u8], generation: Generation) -> Result<Self, Malformed> {
        whole(payload, generation, |from| {
            Ok(Self {
                position: GetOffset::fields(from)?,
                waits: waits(from)?,
            })
        })
    }
}

/// The last byte of v2: whether the reply is to wait.
fn waits(from: &mut Reader<'_>) -> Result<bool, Malformed> {
    if from.generation() == Generation::V2 {
        return from.flag("the acknowledgement");
    }
    Ok(true)
}

/// The whole reply to [`GetOffset`]. `partition` from 1; `current`: the newest offset, 0 when empty; `stored`: the
/// consumer's. Nothing stored is answered with an empty payload instead.
pub fn offset_reply(
    partition: u32,
    current: u64,
    stored: u64,
    generation: Generation,
) -> [u8; REPLY_HEAD_BYTES + 20] {
    let mut out = [0; REPLY_HEAD_BYTES + 20];
    let fields: [&[u8]; 4] = [
        &write_reply_head(0, 20),
        &generation.show(partition).to_le_bytes(),
        &current.to_le_bytes(),
        &stored.to_le_bytes(),
    ];
    for (to, from) in out.iter_mut().zip(fields.concat()) {
        *to = from;
    }
    out
}

/// Commands that v1b has and v1 has not.
const SINCE_V1B: &[(u32, &str)] = &[(12, "GET_CLUSTER_METADATA"), (503, "DELETE_SEGMENTS")];

/// Commands that v2 has and v1b has not.
const SINCE_V2: &[(u32, &str)] = &[(13, "DESCRIBE_OPTIONS"), (606, "SYNC_CONSUMER_GROUP")];

/// Every command of v1 by its number.
const COMMANDS: &[(u32, &str)] = &[
    (1, "PING"),
    (10, "GET_STATS"),
    (11, "GET_SNAPSHOT"),
    (20, "GET_ME"),
    (21, "GET_CLIENT"),
    (22, "GET_CLIENTS"),
    (31, "GET_USER"),
    (32, "GET_USERS"),
    (33, "CREATE_USER"),
    (34, "DELETE_USER"),
    (35, "UPDATE_USER"),
    (36, "UPDATE_PERMISSIONS"),
    (37, "CHANGE_PASSWORD"),
    (38, "LOGIN_USER"),
    (39, "LOGOUT_USER"),
    (41, "GET_PERSONAL_ACCESS_TOKENS"),
    (42, "CREATE_PERSONAL_ACCESS_TOKEN"),
    (43, "DELETE_PERSONAL_ACCESS_TOKEN"),
    (44, "LOGIN_WITH_PERSONAL_ACCESS_TOKEN"),
    (100, "POLL_MESSAGES"),
    (101, "SEND_MESSAGES"),
    (102, "FLUSH_UNSAVED_BUFFER"),
    (120, "GET_CONSUMER_OFFSET"),
    (121, "STORE_CONSUMER_OFFSET"),
    (122, "DELETE_CONSUMER_OFFSET"),
    (200, "GET_STREAM"),
    (201, "GET_STREAMS"),
    (202, "CREATE_STREAM"),
    (203, "DELETE_STREAM"),
    (204, "UPDATE_STREAM"),
    (205, "PURGE_STREAM"),
    (300, "GET_TOPIC"),
    (301, "GET_TOPICS"),
    (302, "CREATE_TOPIC"),
    (303, "DELETE_TOPIC"),
    (304, "UPDATE_TOPIC"),
    (305, "PURGE_TOPIC"),
    (402, "CREATE_PARTITIONS"),
    (403, "DELETE_PARTITIONS"),
    (600, "GET_CONSUMER_GROUP"),
    (601, "GET_CONSUMER_GROUPS"),
    (602, "CREATE_CONSUMER_GROUP"),
    (603, "DELETE_CONSUMER_GROUP"),
    (604, "JOIN_CONSUMER_GROUP"),
    (605, "LEAVE_CONSUMER_GROUP"),
];

/// The protocol's name of a command; `None` = the generation has none of this number.
pub fn command_name(code: u32, generation: Generation) -> Option<&'static str> {
    let named = |all: &'static [(u32, &'static str)]| {
        let at = all.binary_search_by_key(&code, |(code, _)| *code);
        at.ok().and_then(|at| all.get(at)).map(|(_, name)| *name)
    };
    let since_v1b = || (generation != Generation::V1).then(|| named(SINCE_V1B));
    let since_v2 = || (generation == Generation::V2).then(|| named(SINCE_V2));
    named(COMMANDS)
        .or_else(|| since_v1b().flatten())
        .or_else(|| since_v2().flatten())
}
