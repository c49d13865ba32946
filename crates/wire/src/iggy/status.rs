//! Codes of answers to data commands.

/// What a reply says; the numbers are the same in every generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    /// Anything that has no code of its own.
    Error = 1,
    /// No command, or a payload that is not the command's.
    InvalidCommand = 3,
    /// The server does not offer this.
    FeatureUnavailable = 5,
    /// No login on this connection.
    Unauthenticated = 40,
    /// The user may not do this.
    Unauthorized = 41,
    /// It is not known whether the request was carried out: the same one may be sent again.
    TransientNotCommitted = 57,
    /// The request was not carried out: the same one may be sent again.
    TransientNotAccepted = 58,
    /// The number of a request was used by another one.
    RequestAlreadyApplied = 59,
    /// A connection has no such number.
    InvalidClientId = 101,
    /// No stream has this number.
    StreamIdNotFound = 1009,
    /// No stream has this name.
    StreamNameNotFound = 1010,
    /// No topic of the stream has this number.
    TopicIdNotFound = 2010,
    /// No topic of the stream has this name.
    TopicNameNotFound = 2011,
    /// The topic has no partition of this number.
    PartitionNotFound = 3007,
    /// The topic has no partitions.
    NoPartitions = 3008,
    /// Nothing is stored for this consumer.
    ConsumerOffsetNotFound = 3021,
    /// No messages to send, or none asked for.
    InvalidMessagesCount = 4009,
    /// The messages were not stored.
    CannotAppendMessage = 4010,
    /// Values of headers exceed the bound of a request.
    TooBigHeadersPayload = 4017,
    /// Payloads exceed the bound of a request.
    TooBigMessagePayload = 4022,
    /// A message does not have its checksum.
    InvalidMessageChecksum = 4027,
    /// A key for choosing the partition has 1 to 255 bytes.
    InvalidKeyValueLength = 4028,
    /// A batch does not have its checksum.
    InvalidBatchChecksum = 4039,
    /// The offset is beyond the newest.
    InvalidOffset = 4100,
    /// Reserved bytes are in use.
    InvalidReservedField = 4101,
    /// No group of the topic has this number.
    ConsumerGroupIdNotFound = 5000,
    /// No group of the topic has this name.
    ConsumerGroupNameNotFound = 5003,
    /// The connection has not joined the group.
    ConsumerGroupMemberNotFound = 5006,
    /// The member does not read this partition.
    ConsumerGroupPartitionNotOwned = 5009,
}
impl Status {
    /// The number on the wire; never 0.
    pub fn code(self) -> u32 {
        self as u32
    }
}
