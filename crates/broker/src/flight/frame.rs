//! Record batches as framed gRPC messages, without copying their columns.
//!
//! A `DoGet` answer is a sequence of `FlightData` messages. Through the generated structs each column would be copied
//! twice more (into the message body, then into the gRPC buffer); here a message is a short head, built by hand, and then
//! the column buffers as they are:
//!
//! | Bytes | Meaning |
//! |---|---|
//! | 1 | gRPC: 0, not compressed |
//! | 4 | gRPC: length of the message, big-endian |
//! | `0x12`, varint, n | `FlightData.data_header`: the Arrow IPC message head |
//! | `0x1A`, varint, n | `FlightData.app_metadata` |
//! | `0xC2 0x3E`, varint, n | `FlightData.data_body`: the Arrow IPC message body |
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_flight::{FlightData, SchemaAsIpc};
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{IpcWriteOptions, StreamEncoder};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use bytes::{BufMut, Bytes, BytesMut};

/// Buffers smaller than this are gathered into one chunk; larger ones travel as they are.
const SMALL_BYTES: usize = 4096;
/// Column buffers are padded to this in the message body.
const ALIGNMENT: usize = 8;
/// Continuation marker and length, before every message head of the Arrow stream format.
const PREFIX_BYTES: usize = 8;

/// Encodes the messages of one `DoGet` answer.
pub struct FrameEncoder {
    encoder: StreamEncoder,
}

impl std::fmt::Debug for FrameEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameEncoder").finish_non_exhaustive()
    }
}

impl FrameEncoder {
    /// The encoder and the schema message.
    ///
    /// # Errors
    /// When the schema cannot be written as Arrow IPC (none of ours).
    pub fn new(schema: &SchemaRef) -> Result<(Self, Bytes), ArrowError> {
        let options = write_options()?;
        let mut encoder = StreamEncoder::try_new_with_options(schema, options.clone())?;
        // The encoder writes the schema before the first batch; our schema message is `first`, so that one is dropped.
        encoder.encode(&RecordBatch::new_empty(schema.clone()))?;
        let head = FlightData::from(SchemaAsIpc::new(schema, &options)).data_header;
        let mut first = message_head(head.len(), 0, 0);
        put_field(&mut first, &[0x12], head.len());
        first.put_slice(&head);
        Ok((Self { encoder }, first.freeze()))
    }

    /// The chunks of the message that holds `batch` and `app_metadata`; their concatenation is the framed message. Large
    /// column buffers are shared with the batch, not copied.
    ///
    /// # Errors
    /// When the batch does not fit the schema given to [`FrameEncoder::new`].
    pub fn encode(
        &mut self,
        batch: &RecordBatch,
        app_metadata: &[u8],
    ) -> Result<Vec<Bytes>, ArrowError> {
        let buffers = self.encoder.encode(batch)?;
        let total: usize = buffers.iter().map(Buffer::len).sum();
        let mut buffers = buffers.into_iter();
        let head = message_metadata(&mut buffers)?;
        let body = total - PREFIX_BYTES - head.len();
        let mut small = message_head(head.len(), app_metadata.len(), body);
        put_field(&mut small, &[0x12], head.len());
        small.put_slice(&head);
        put_field(&mut small, &[0x1A], app_metadata.len());
        small.put_slice(app_metadata);
        put_field(&mut small, &[0xC2, 0x3E], body);
        let mut chunks = Vec::with_capacity(8);
        for buffer in buffers {
            if buffer.len() < SMALL_BYTES {
                small.put_slice(buffer.as_slice());
            } else {
                chunks.push(small.split().freeze());
                chunks.push(Bytes::from_owner(buffer));
            }
        }
        if !small.is_empty() {
            chunks.push(small.freeze());
        }
        Ok(chunks)
    }
}

/// How schemas and batches are written everywhere in this module.
///
/// # Errors
/// Never with these constants.
pub fn write_options() -> Result<IpcWriteOptions, ArrowError> {
    IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)
}

/// A schema as one IPC message, length-prefixed, as `FlightInfo.schema` and `GetSchema` carry it.
///
/// # Errors
/// When the schema cannot be written as Arrow IPC (none of ours).
pub fn schema_bytes(schema: &Schema) -> Result<Bytes, ArrowError> {
    let options = write_options()?;
    let result: arrow_flight::SchemaResult = SchemaAsIpc::new(schema, &options).try_into()?;
    Ok(result.schema)
}

/// Takes the message head off the front of an encapsulated message: prefix, head and its padding are buffers of their own.
fn message_metadata(buffers: &mut std::vec::IntoIter<Buffer>) -> Result<Vec<u8>, ArrowError> {
    let broken = || ArrowError::IpcError("encoder wrote no message head".to_owned());
    let prefix = buffers.next().ok_or_else(broken)?;
    let length: [u8; 4] = prefix
        .as_slice()
        .get(4..PREFIX_BYTES)
        .and_then(|b| b.try_into().ok())
        .ok_or_else(broken)?;
    let length = u32::from_le_bytes(length) as usize;
    let mut head = Vec::with_capacity(length);
    while head.len() < length {
        head.extend_from_slice(buffers.next().ok_or_else(broken)?.as_slice());
    }
    if head.len() == length {
        Ok(head)
    } else {
        Err(broken())
    }
}

/// gRPC's five bytes for a `FlightData` with this much head, metadata (0 = no field) and body (0 = no field), in a buffer
/// with room for the rest.
fn message_head(head: usize, metadata: usize, body: usize) -> BytesMut {
    let field = |tag: usize, n: usize| tag + varint_bytes(n) + n;
    let metadata_field = if metadata == 0 { 0 } else { field(1, metadata) };
    let body_field = if body == 0 { 0 } else { field(2, body) };
    let length = field(1, head) + metadata_field + body_field;
    let mut out = BytesMut::with_capacity(32 + head + metadata + SMALL_BYTES);
    out.put_u8(0);
    out.put_u32(length as u32);
    out
}

/// Tag and length of a field; nothing when it is empty.
fn put_field(out: &mut BytesMut, tag: &[u8], length: usize) {
    if length > 0 {
        out.put_slice(tag);
        put_varint(out, length);
    }
}

fn put_varint(out: &mut BytesMut, mut n: usize) {
    while n >= 0x80 {
        out.put_u8((n as u8) | 0x80);
        n >>= 7;
    }
    out.put_u8(n as u8);
}

fn varint_bytes(n: usize) -> usize {
    (usize::BITS - n.max(1).leading_zeros()).div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{BinaryArray, Int64Array};
    use arrow_flight::decode::FlightRecordBatchStream;
    use arrow_schema::{DataType, Field};
    use futures_util::TryStreamExt;
    use prost::Message;
    use std::sync::Arc;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, false),
            Field::new("value", DataType::Binary, true),
        ]))
    }

    fn batch(rows: usize, bytes: usize) -> RecordBatch {
        let values: Vec<Vec<u8>> = (0..rows).map(|i| vec![i as u8; bytes]).collect();
        let values = values.iter().enumerate();
        let values: BinaryArray = values
            .map(|(i, value)| (i % 3 != 1).then_some(value))
            .collect();
        RecordBatch::try_new(
            schema(),
            vec![
                Arc::new(Int64Array::from_iter_values(0..rows as i64)),
                Arc::new(values),
            ],
        )
        .unwrap()
    }

    fn message(chunks: &[Bytes]) -> FlightData {
        let framed = chunks.concat();
        let length = u32::from_be_bytes(framed[1..5].try_into().unwrap()) as usize;
        assert_eq!(
            (framed[0], length),
            (0, framed.len() - 5),
            "the gRPC frame fits exactly"
        );
        FlightData::decode(&framed[5..]).unwrap()
    }

    #[tokio::test]
    async fn messages_decode_to_the_same_batches() {
        let (mut encoder, first) = FrameEncoder::new(&schema()).unwrap();
        let batches = [
            batch(0, 0),
            batch(1, 0),
            batch(1, 200),
            batch(700, 3),
            batch(5000, 100),
            batch(3, 70_000),
        ];
        let mut messages = vec![Ok(message(&[first]))];
        for batch in &batches {
            let message = message(&encoder.encode(batch, b"next").unwrap());
            assert_eq!(message.app_metadata, "next");
            messages.push(Ok(message));
        }
        let decoded: Vec<RecordBatch> =
            FlightRecordBatchStream::new_from_flight_data(futures_util::stream::iter(messages))
                .try_collect()
                .await
                .unwrap();
        assert_eq!(decoded, batches);
    }

    #[test]
    fn large_columns_are_shared_not_copied() {
        let (mut encoder, _) = FrameEncoder::new(&schema()).unwrap();
        let batch = batch(5000, 100);
        let values = batch.column(1).to_data().buffers()[1].as_ptr();
        let chunks = encoder.encode(&batch, b"").unwrap();
        assert!(chunks.iter().any(|chunk| chunk.as_ptr() == values));
    }

    #[test]
    fn varints_have_the_length_that_was_counted() {
        for n in [
            0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 70_000_000,
        ] {
            let mut out = BytesMut::new();
            put_varint(&mut out, n);
            assert_eq!(out.len(), varint_bytes(n), "{n}");
        }
    }
}
