//! The outcome of each record of a batch, over all attempts to send it.
use crate::Error;
use crate::publish_batch::Chunk;
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::acks::{AckView, ResponseView};
use bytes::Bytes;

/// Values in `places`: no answer yet, or refused in this attempt.
const SILENT: i64 = -1;
const REFUSED: i64 = -2;

/// Collects the answers, by record.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    /// (offset, timestamp ns); offset [`SILENT`] or [`REFUSED`] while it is not stored.
    places: Vec<(i64, i64)>,
    /// By chunk: index after its last record, bytes, and unanswered records.
    chunks: Vec<Left>,
    stored: usize,
    refused: usize,
    /// Fully answered chunks, and their bytes.
    whole: (usize, usize),
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Left {
    end: usize,
    bytes: usize,
    records: usize,
}

#[derive(Debug)]
struct Failure {
    index: usize,
    /// A consequence of another record's failure.
    follows: bool,
    error: Error,
}

impl Acks {
    /// Begins an attempt: stored records stay, refused ones count as unanswered.
    pub(crate) fn begin(&mut self, chunks: &[Chunk], records: usize) {
        self.places.resize(records, (SILENT, 0));
        for place in &mut self.places {
            if place.0 == REFUSED {
                place.0 = SILENT;
            }
        }
        let left = |chunk: &Chunk| {
            let end = chunk.first + chunk.records;
            let places = self.places.get(chunk.first..end).unwrap_or_default();
            Left {
                end,
                bytes: chunk.frames.len(),
                records: places.iter().filter(|place| place.0 == SILENT).count(),
            }
        };
        self.chunks = chunks.iter().map(left).collect();
        self.refused = 0;
        self.whole = (0, 0);
        self.failure = None;
    }

    /// (offset, timestamp ns) of each record.
    pub(crate) fn places(&self) -> &[(i64, i64)] {
        &self.places
    }

    /// Whether a record was refused in this attempt.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused > 0
    }

    /// Records that are known to be stored.
    pub(crate) fn stored(&self) -> usize {
        self.stored
    }

    /// Whether every record was answered, with success or an error.
    pub(crate) fn is_complete(&self) -> bool {
        self.stored + self.refused == self.places.len()
    }

    /// Whether a chunk has unanswered records.
    pub(crate) fn is_open(&self, chunk: usize) -> bool {
        self.chunks.get(chunk).is_some_and(|left| left.records > 0)
    }

    /// Unanswered records of a chunk.
    pub(crate) fn left(&self, chunk: usize) -> usize {
        self.chunks.get(chunk).map_or(0, |left| left.records)
    }

    /// Answered records, fully answered chunks and their bytes, of this attempt.
    pub(crate) fn progress(&self) -> (usize, usize, usize) {
        (self.stored + self.refused, self.whole.0, self.whole.1)
    }

    /// One response of PublishAsync. Late, repeated and unknown ones are ignored.
    ///
    /// # Errors
    /// `internal` when it is malformed.
    pub(crate) fn take(&mut self, message: Bytes) -> Result<(), Error> {
        let response = ResponseView::read(message).ok_or_else(|| {
            Error::new(
                ErrorCode::Internal,
                "the broker sent a malformed PublishResponse",
            )
        })?;
        let index = std::str::from_utf8(response.answered())
            .ok()
            .and_then(|text| text.parse::<usize>().ok());
        let Some(index) = index else { return Ok(()) };
        if let Some(failure) = &response.async_error {
            self.refuse(index, Error::from_async(failure));
        } else if let Some(ack) = &response.ack {
            self.take_ack(index, ack);
        }
        Ok(())
    }

    /// The ack of record `index`.
    pub(crate) fn take_ack(&mut self, index: usize, ack: &AckView) {
        if self.answer(index, (ack.offset, ack.reception_timestamp)) {
            self.stored += 1;
        }
    }

    /// Notes that record `index` was refused.
    pub(crate) fn refuse(&mut self, index: usize, error: Error) {
        if !self.answer(index, (REFUSED, 0)) {
            return;
        }
        self.refused += 1;
        let follows = error.code == ErrorCode::SequenceGap || error.reason() == Some(FOLLOWS);
        let comes_first = self
            .failure
            .as_ref()
            .is_none_or(|known| (follows, index) < (known.follows, known.index));
        if comes_first {
            self.failure = Some(Failure {
                index,
                follows,
                error,
            });
        }
    }

    fn answer(&mut self, index: usize, answer: (i64, i64)) -> bool {
        let Some(place) = self.places.get_mut(index).filter(|place| place.0 == SILENT) else {
            return false;
        };
        *place = answer;
        let chunk = self.chunks.partition_point(|left| left.end <= index);
        if let Some(left) = self.chunks.get_mut(chunk) {
            left.records = left.records.saturating_sub(1);
            if left.records == 0 {
                self.whole = (self.whole.0 + 1, self.whole.1 + left.bytes);
            }
        }
        true
    }

    /// The failure that caused the others, with how much of the batch is stored.
    pub(crate) fn failure(&self) -> Option<Error> {
        let failure = self.failure.as_ref()?;
        let mut error = failure.error.clone();
        error.details.index = Some(failure.index);
        error.details.acknowledged = Some(self.stored);
        Some(error)
    }

    /// The error when the call ended with acks outstanding: about the first unanswered record.
    pub(crate) fn cut_short(&self, mut error: Error) -> Error {
        error.details.index = self.places.iter().position(|place| place.0 == SILENT);
        error.details.acknowledged = Some(self.stored);
        error
    }
}

/// Reason: another record of its batch was rejected.
const FOLLOWS: &str = "batch_rejected";
