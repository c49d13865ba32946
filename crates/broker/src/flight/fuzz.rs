//! Doors for the fuzz targets.
use super::intake::Intake;
use super::request::{OffsetsRequest, PutCommand, ScanTicket, Selection, parse};
use arrow_array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use bascule_record::{BatchBuilder, BatchLimits, Codec};
use bascule_wire::flight::ingest::{Ingest, IngestError, IngestTarget, ingest};
use futures_util::{FutureExt, StreamExt, stream};
use std::num::NonZeroU32;

/// A JSON document of a client, chosen by `kind`: whether it is taken. A ticket that is taken reads again as written.
///
/// # Panics
/// When a ticket does not.
pub fn flight_document(kind: u8, bytes: &[u8]) -> bool {
    match kind % 4 {
        0 => parse::<Selection>("descriptor", bytes).is_ok(),
        1 => parse::<PutCommand>("put command", bytes).is_ok(),
        2 => parse::<OffsetsRequest>("body", bytes).is_ok(),
        _ => {
            let Ok(ticket) = parse::<ScanTicket>("ticket", bytes) else {
                return false;
            };
            let written = serde_json::to_vec(&ticket).unwrap_or_default();
            let again = parse::<ScanTicket>("ticket", &written);
            let text = |ticket: &ScanTicket| serde_json::to_string(ticket).ok();
            assert_eq!(again.ok().as_ref().and_then(text), text(&ticket));
            true
        }
    }
}

/// The messages of one `DoPut`, as the pump of a call takes them in: records that were built. Spread over partitions they
/// are as many.
///
/// # Panics
/// When they are not.
pub fn flight_put(messages: Vec<FlightData>) -> u64 {
    let mut intake = Intake::default();
    let checked = messages.into_iter().map_while(move |message| {
        let is_taken = intake.check(&message).is_ok();
        is_taken.then_some(Ok(message))
    });
    let mut decoder = FlightDataDecoder::new(stream::iter(checked));
    let target = IngestTarget {
        stream: "s",
        partition: 0,
        subject: None,
        now: 0,
        codec: Codec::None,
        producer: None,
    };
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let mut built = 0;
    // Everything is there: the decoder never waits.
    while let Some(Some(Ok(decoded))) = decoder.next().now_or_never() {
        if let DecodedPayload::RecordBatch(batch) = decoded.payload
            && let Ok(sealed) = ingest(&batch, &target, &mut builder)
        {
            let taken: u64 = sealed.iter().map(|batch| u64::from(batch.count())).sum();
            assert_eq!(spread(&batch, &target, &mut builder), Ok(taken));
            built += taken;
        }
    }
    built
}

/// Takes the rows to the partitions of a stream with three; returns how many records were built.
fn spread(
    batch: &RecordBatch,
    target: &IngestTarget<'_>,
    builder: &mut BatchBuilder,
) -> Result<u64, IngestError> {
    let partitions = NonZeroU32::MIN.saturating_add(2);
    let bound = Ingest::bind(batch, target.stream)?;
    let mut built = 0;
    for rows in bound.spread(partitions, 1)?.values() {
        let sealed = bound.seal(rows, target, builder)?;
        built += sealed
            .iter()
            .map(|batch| u64::from(batch.count()))
            .sum::<u64>();
    }
    Ok(built)
}
