//! What a message of a `DoPut` must be before Arrow's decoder sees it.
//!
//! The decoder trusts lengths: it panics on a buffer outside the body or one that ends within an element, and allocates what
//! a compressed buffer claims to become. All three are checked here. Column types and values are checked later, where rows are taken apart.
use super::buffer_layout::Elements;
use super::refusal::invalid;
use super::service::MAX_MESSAGE_BYTES;
use arrow_flight::FlightData;
use arrow_ipc::{Buffer, MessageHeader, RecordBatch, root_as_message};
use arrow_schema::Schema;
use tonic::Status;

/// Length that a compressed buffer begins with: what it becomes, i64; −1 = it is not compressed.
const CLAIM_BYTES: usize = 8;

/// Checks the messages of one call.
#[derive(Debug, Default)]
pub struct Intake {
    /// Of the schema that came last.
    elements: Option<Elements>,
}

impl Intake {
    /// Refuses messages that the decoder must not see.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`.
    pub fn check(&mut self, data: &FlightData) -> Result<(), Status> {
        let message = root_as_message(&data.data_header).map_err(|error| {
            invalid(format!(
                "a message head is not a valid Arrow message: {error}"
            ))
        })?;
        match message.header_type() {
            MessageHeader::Schema => {
                let schema = Schema::try_from(data)
                    .map_err(|error| invalid(format!("the schema cannot be read: {error}")))?;
                self.elements = Some(Elements::of(&schema)?);
                Ok(())
            }
            MessageHeader::NONE => Ok(()),
            MessageHeader::RecordBatch => {
                let batch = message.header_as_record_batch();
                let batch =
                    batch.ok_or_else(|| invalid("a record batch has no head".to_owned()))?;
                let elements = self
                    .elements
                    .as_ref()
                    .ok_or_else(|| invalid("a record batch came before the schema".to_owned()))?;
                check_batch(&batch, &data.data_body, elements)
            }
            MessageHeader::DictionaryBatch => Err(invalid(
                "dictionary-encoded columns are not taken: send plain ones".to_owned(),
            )),
            other => Err(invalid(format!("a message of kind {other:?} is not taken"))),
        }
    }
}

fn check_batch(batch: &RecordBatch<'_>, body: &[u8], elements: &Elements) -> Result<(), Status> {
    let mut claimed = 0;
    let mut lengths = elements.lengths(batch.variadicBufferCounts().into_iter().flatten());
    for buffer in batch.buffers().into_iter().flatten() {
        let content = content(buffer, body).ok_or_else(|| {
            let (offset, length, have) = (buffer.offset(), buffer.length(), body.len());
            invalid(format!(
                "a record batch names {length} bytes at {offset} of a body of {have} bytes"
            ))
        })?;
        let mut length = content.len();
        if batch.compression().is_some() {
            length = claim(content)?;
            claimed += length;
        }
        // Buffers beyond those of the schema are ignored.
        let element = lengths.next().unwrap_or(1);
        if !length.is_multiple_of(element) {
            return Err(invalid(format!(
                "a buffer of {length} bytes ends within an element of {element} bytes"
            )));
        }
        if claimed > MAX_MESSAGE_BYTES {
            return Err(invalid(format!(
                "a compressed record batch becomes more than {MAX_MESSAGE_BYTES} bytes: send smaller ones"
            )));
        }
    }
    let is_negative = |n: i64| n < 0;
    let nodes = batch.nodes().into_iter().flatten();
    if is_negative(batch.length())
        || nodes
            .into_iter()
            .any(|n| is_negative(n.length()) || is_negative(n.null_count()))
    {
        return Err(invalid(
            "a record batch has a negative number of rows".to_owned(),
        ));
    }
    Ok(())
}

fn content<'a>(buffer: &Buffer, body: &'a [u8]) -> Option<&'a [u8]> {
    let start = usize::try_from(buffer.offset()).ok()?;
    let length = usize::try_from(buffer.length()).ok()?;
    body.get(start..start.checked_add(length)?)
}

/// Bytes that a buffer of a compressed batch becomes.
fn claim(content: &[u8]) -> Result<usize, Status> {
    if content.is_empty() {
        return Ok(0);
    }
    let claim = content
        .first_chunk::<CLAIM_BYTES>()
        .map(|bytes| i64::from_le_bytes(*bytes));
    let bytes = match claim {
        Some(-1) => Some(content.len() - CLAIM_BYTES),
        Some(bytes) => usize::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes <= MAX_MESSAGE_BYTES),
        None => None,
    };
    bytes.ok_or_else(|| {
        invalid("a compressed buffer does not say what it becomes, or too much".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::BinaryArray;
    use arrow_ipc::writer::{
        DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
    };
    use arrow_ipc::{CompressionType, MetadataVersion};
    use arrow_schema::{DataType, Field};
    use std::sync::Arc;

    fn message(compression: Option<CompressionType>) -> FlightData {
        let values: BinaryArray = (0..500).map(|_| Some(b"the same again")).collect();
        let batch =
            arrow_array::RecordBatch::try_from_iter([("value", Arc::new(values) as _)]).unwrap();
        let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5).unwrap();
        let options = options.try_with_compression(compression).unwrap();
        let (_, encoded) = IpcDataGenerator::default()
            .encode(
                &batch,
                &mut DictionaryTracker::new(false),
                &options,
                &mut IpcWriteContext::default(),
            )
            .unwrap();
        FlightData::from(encoded)
    }

    fn check(data: &FlightData) -> Result<(), Status> {
        let schema = Schema::new(vec![Field::new("value", DataType::Binary, true)]);
        let elements = Some(Elements::of(&schema).unwrap());
        Intake { elements }.check(data)
    }

    #[test]
    fn a_batch_before_its_schema_is_refused() {
        assert!(Intake::default().check(&message(None)).is_err());
    }

    #[test]
    fn whole_messages_pass() {
        check(&message(None)).unwrap();
        check(&message(Some(CompressionType::LZ4_FRAME))).unwrap();
    }

    #[test]
    fn a_body_cut_anywhere_is_refused() {
        let whole = message(None);
        for length in 0..whole.data_body.len() - ALIGNED {
            let cut = FlightData {
                data_body: whole.data_body.slice(..length),
                ..whole.clone()
            };
            assert!(check(&cut).is_err(), "{length}");
        }
    }
    /// Padding after the last buffer, which may be missing.
    const ALIGNED: usize = 8;

    #[test]
    fn a_compressed_buffer_that_claims_too_much_is_refused() {
        let whole = message(Some(CompressionType::LZ4_FRAME));
        let honest = (500_i64 * 14).to_le_bytes();
        let at = whole
            .data_body
            .windows(8)
            .rposition(|window| window == honest)
            .unwrap();
        for claim in [i64::MAX, i64::MIN, -2, (MAX_MESSAGE_BYTES as i64) + 1] {
            let mut body = whole.data_body.to_vec();
            body[at..at + 8].copy_from_slice(&claim.to_le_bytes());
            let message = FlightData {
                data_body: body.into(),
                ..whole.clone()
            };
            assert!(check(&message).is_err(), "{claim}");
        }
    }

    #[test]
    fn heads_that_are_none_are_refused() {
        let whole = message(None);
        for length in 0..whole.data_header.len() - ALIGNED {
            let cut = FlightData {
                data_header: whole.data_header.slice(..length),
                ..whole.clone()
            };
            assert!(check(&cut).is_err(), "{length}");
        }
    }
}
