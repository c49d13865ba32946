//! Sends: checked once as a whole, then read message by message without copying.
use super::identifiers::{Identifier, Partitioning};
use crate::iggy::reader::{Reader, text};
use crate::iggy::{Generation, Malformed, Status};
use crate::iggy::{v1b, v2};
use bascule_record::HeaderEntry;
use thiserror::Error;

/// Most bytes that the values of all headers of a request have together.
pub const MAX_HEADER_VALUE_BYTES: usize = 100_000;
/// The kind of a text, which all header keys of v1 are.
pub(in crate::iggy) const TEXT_KIND: u8 = 2;
/// The last kind of a header value.
pub(in crate::iggy) const LAST_KIND: u8 = 15;

/// Why a send is refused whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The payload is not a send.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It holds no message.
    #[error("the send holds no message")]
    NoMessages,
    /// The key that chooses the partition is empty.
    #[error("the key that chooses the partition is empty; it has 1 to 255 bytes")]
    EmptyKey,
    /// A message of v2 does not have its checksum.
    #[error("message {index} fails its checksum")]
    MessageChecksum {
        /// Index into the send.
        index: u32,
    },
    /// A batch of v2 does not have its checksum.
    #[error("the batch fails its checksum")]
    BatchChecksum,
    /// Bytes of a batch that clients may not use.
    #[error("reserved bytes of the batch are not 0")]
    Reserved,
    /// Values of headers beyond [`MAX_HEADER_VALUE_BYTES`].
    #[error("values of headers take {bytes} bytes; at most {MAX_HEADER_VALUE_BYTES} in a send")]
    Headers {
        /// Bytes of all values together.
        bytes: usize,
    },
    /// Payloads beyond [`Generation::max_payload_bytes`].
    #[error("payloads take {bytes} bytes; at most {most} in a send")]
    Payloads {
        /// Bytes of all payloads together.
        bytes: usize,
        /// The bound, bytes.
        most: usize,
    },
}
impl SendError {
    /// The status of the reply.
    pub fn status(&self) -> Status {
        match self {
            Self::Malformed(_) => Status::InvalidCommand,
            Self::NoMessages => Status::InvalidMessagesCount,
            Self::EmptyKey => Status::InvalidKeyValueLength,
            Self::MessageChecksum { .. } => Status::InvalidMessageChecksum,
            Self::BatchChecksum => Status::InvalidBatchChecksum,
            Self::Reserved => Status::InvalidReservedField,
            Self::Headers { .. } => Status::TooBigHeadersPayload,
            Self::Payloads { .. } => Status::TooBigMessagePayload,
        }
    }
}

/// `SEND_MESSAGES`, 101.
#[derive(Clone, Copy, Debug)]
pub struct Send<'a> {
    /// Stream.
    pub stream: Identifier<'a>,
    /// Topic.
    pub topic: Identifier<'a>,
    /// Which partition; a key has 1 to 255 bytes.
    pub partitioning: Partitioning<'a>,
    /// At least one.
    pub messages: Messages<'a>,
}
impl<'a> Send<'a> {
    /// Number of the command.
    pub const CODE: u32 = 101;

    /// Reads and checks a whole payload: every message, header and bound of the request.
    ///
    /// # Errors
    /// [`SendError`]; when several apply, a malformed payload first, then in the order of the enum.
    pub fn read(payload: &'a [u8], generation: Generation) -> Result<Self, SendError> {
        let mut from = Reader::new(payload, generation);
        let (stream, topic, partitioning, messages);
        if generation == Generation::V2 {
            let mut place = v1b::metadata(&mut from)?;
            (stream, topic, partitioning) = Self::place(&mut place)?;
            messages = Messages::check_batch(place, from)?;
        } else if generation.message_head_bytes().is_some() {
            let mut place = v1b::metadata(&mut from)?;
            (stream, topic, partitioning) = Self::place(&mut place)?;
            messages = Messages::check_indexed(place, from)?;
        } else {
            (stream, topic, partitioning) = Self::place(&mut from)?;
            messages = Messages::check(from)?;
        }
        if messages.count == 0 {
            return Err(SendError::NoMessages);
        }
        if partitioning == Partitioning::Key(&[]) {
            return Err(SendError::EmptyKey);
        }
        if messages.header_value_bytes > MAX_HEADER_VALUE_BYTES {
            let bytes = messages.header_value_bytes;
            return Err(SendError::Headers { bytes });
        }
        let (bytes, most) = (messages.payload_bytes, generation.max_payload_bytes());
        if bytes > most {
            return Err(SendError::Payloads { bytes, most });
        }
        Ok(Self {
            stream,
            topic,
            partitioning,
            messages,
        })
    }

    fn place(
        from: &mut Reader<'a>,
    ) -> Result<(Identifier<'a>, Identifier<'a>, Partitioning<'a>), Malformed> {
        Ok((
            Identifier::read(from, "the stream")?,
            Identifier::read(from, "the topic")?,
            Partitioning::read(from)?,
        ))
    }
}

/// Messages of a send, all checked.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    bytes: Reader<'a>,
    count: usize,
    payload_bytes: usize,
    header_value_bytes: usize,
    /// Of the batch, µs since 1970; 0 = each message has its own, or none.
    origin_us: u64,
}
impl<'a> Messages<'a> {
    fn check(mut from: Reader<'a>) -> Result<Self, Malformed> {
        let mut checked = Self::of(from);
        while !from.rest().is_empty() {
            checked.take(&mut from)?;
        }
        Ok(checked)
    }

    /// Those of v1b: `place` ends with their number, and where each ends stands before them.
    fn check_indexed(mut place: Reader<'a>, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let mut ends = v1b::Ends::read(&mut place, &mut from)?;
        let mut checked = Self::of(from);
        while !from.rest().is_empty() {
            let before = from.rest().len();
            checked.take(&mut from)?;
            ends.check(before - from.rest().len())?;
        }
        ends.finish().map(|()| checked)
    }

    /// The batch of v2: `place` ends with its number of messages.
    fn check_batch(mut place: Reader<'a>, mut from: Reader<'a>) -> Result<Self, SendError> {
        let count = place.u32("the number of messages")?;
        place.finish()?;
        if count == 0 {
            return Err(SendError::NoMessages);
        }
        let mut frames = v2::Frames::read(&mut from, count)?;
        let mut checked = Self {
            origin_us: frames.origin_us,
            ..Self::of(from)
        };
        while !from.rest().is_empty() {
            let before = from.rest();
            checked.take(&mut from)?;
            let bytes = before.len() - from.rest().len();
            frames.check(before.get(..bytes).unwrap_or_default())?;
        }
        frames.finish().map(|()| checked)
    }

    fn of(bytes: Reader<'a>) -> Self {
        Self {
            bytes,
            count: 0,
            payload_bytes: 0,
            header_value_bytes: 0,
            origin_us: 0,
        }
    }

    fn take(&mut self, from: &mut Reader<'a>) -> Result<(), Malformed> {
        let message = Message::read(from, self.origin_us)?;
        let mut headers = message.headers;
        while !headers.rest().is_empty() {
            self.header_value_bytes += read_header(&mut headers)?.value.len();
        }
        self.count += 1;
        self.payload_bytes += message.payload.len();
        Ok(())
    }

    /// Messages, at least one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all payloads together, from 1.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Every message, in order.
    pub fn iter(&self) -> impl Iterator<Item = Message<'a>> + use<'a> {
        let (mut from, origin_us) = (self.bytes, self.origin_us);
        // All were read once before: the end is the only reason for an error.
        std::iter::from_fn(move || Message::read(&mut from, origin_us).ok())
    }
}

/// One message of a send.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Given by the client, 0 = none.
    pub id: u128,
    /// When the client made it, µs since 1970; `None` = it does not say, or 0.
    pub origin_us: Option<u64>,
    /// What is stored as the record's value, at least one byte.
    pub payload: &'a [u8],
    headers: Reader<'a>,
}
impl<'a> Message<'a> {
    /// `origin_us`: of its batch in v2.
    fn read(from: &mut Reader<'a>, origin_us: u64) -> Result<Self, Malformed> {
        let generation = from.generation();
        let head = match (generation, generation.message_head_bytes()) {
            (Generation::V2, _) => Some(v2::read_frame(from, origin_us)?),
            (_, Some(head_bytes)) => Some(v1b::Head::read(from, head_bytes)?),
            (_, None) => None,
        };
        if let Some(head) = head {
            let payload = from.take(head.payload_bytes, "a message's payload")?;
            let headers = from.take(head.header_bytes, "a message's headers")?;
            return Ok(Self {
                id: head.id,
                origin_us: head.origin_us,
                payload,
                headers: Reader::new(headers, generation),
            });
        }
        let id = from.u128("a message's id")?;
        let bytes = from.u32("the length of a message's headers")?;
        let headers = from.take(bytes as usize, "a message's headers")?;
        let bytes = from.u32("the length of a message's payload")?;
        if bytes == 0 {
            return Err(Malformed::Unknown {
                field: "the length of a message's payload",
                value: 0,
            });
        }
        let payload = from.take(bytes as usize, "a message's payload")?;
        Ok(Self {
            id,
            origin_us: None,
            payload,
            headers: Reader::new(headers, generation),
        })
    }

    /// Headers as records keep them, in the order of the request.
    pub fn headers(&self) -> impl Iterator<Item = HeaderEntry<'a>> + use<'a> {
        let mut from = self.headers;
        // All were read once before: the end is the only reason for an error.
        std::iter::from_fn(move || read_header(&mut from).ok())
    }
}

/// One header: key and value of 1 to 255 bytes, both of a known kind; a key without a kind is a text.
fn read_header<'a>(from: &mut Reader<'a>) -> Result<HeaderEntry<'a>, Malformed> {
    let key_kind = if from.generation().has_typed_keys() {
        kind(from, "the kind of a header's key")?
    } else {
        TEXT_KIND
    };
    let key = sized(from, "a header's key")?;
    if key_kind == TEXT_KIND {
        text(key, "a header's key")?;
    }
    let value_kind = kind(from, "a header's kind")?;
    let value = sized(from, "a header's value")?;
    Ok(HeaderEntry {
        key_kind,
        key,
        value_kind,
        value,
    })
}

fn kind(from: &mut Reader<'_>, field: &'static str) -> Result<u8, Malformed> {
    match from.u8(field)? {
        kind @ 1..=LAST_KIND => Ok(kind),
        value => Err(Malformed::Unknown {
            field,
            value: value.into(),
        }),
    }
}

fn sized<'a>(from: &mut Reader<'a>, field: &'static str) -> Result<&'a [u8], Malformed> {
    match from.u32(field)? {
        bytes @ 1..=255 => from.take(bytes as usize, field),
        value => Err(Malformed::Unknown { field, value }),
    }
}
