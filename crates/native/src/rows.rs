//! `_native.check_rows`: what Spark's tasks find out about the rows that they send or verify.
use crate::failure::native_error;
use arrow_array::RecordBatch;
use arrow_buffer::{BooleanBufferBuilder, Buffer};
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use bascule_client::ErrorCode;
use bascule_wire::flight::check::{RefusedRow, Rule, StreamLimits, check};
use bascule_wire::flight::digest::RowDigest;
use bascule_wire::flight::ingest::IngestError;
use bascule_wire::flight::letters::Letters;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fmt::Write as _;
use std::num::NonZeroU32;

/// Letters are handed over in messages of about so many bytes.
const MESSAGE_BYTES: usize = 8 << 20;

/// Refused rows of one kind: how many, and the first one's (code, sentence, number, bytes of the record, bytes of its value).
type Refused = (u64, Option<(String, String, u64, usize, usize)>);
/// What Python gets.
type Checked<'py> = (
    u64,
    Bound<'py, PyBytes>,
    Option<Bound<'py, PyBytes>>,
    Refused,
    Refused,
    Vec<Bound<'py, PyBytes>>,
    u64,
);
/// Which kinds become letters (too large, invalid), the bound of their stream, and what all of them say.
type Wanted = (bool, bool, usize, Vec<(String, String)>);

#[pyfunction]
#[pyo3(signature = (batches, stream, *, limits=None, closed=None, first=0, numbers=None, letters=None))]
#[allow(clippy::too_many_arguments)] // keywords in Python
pub(crate) fn check_rows<'py>(
    py: Python<'py>,
    batches: &Bound<'py, PyAny>,
    stream: &str,
    limits: Option<(u32, usize)>,
    closed: Option<(String, String)>,
    first: u64,
    numbers: Option<PyBuffer<u64>>,
    letters: Option<Wanted>,
) -> PyResult<Checked<'py>> {
    // Copied, because others may write to it while the interpreter is released.
    let batches = PyBuffer::<u8>::get(batches)?.to_vec(py)?;
    let numbers = numbers.map(|numbers| numbers.to_vec(py)).transpose()?;
    let rule = match (&closed, limits) {
        (Some(_), _) => Rule::Closed,
        (None, Some((partitions, record_bytes))) => Rule::Limits(StreamLimits {
            partitions: NonZeroU32::new(partitions).unwrap_or(NonZeroU32::MIN),
            record_bytes,
        }),
        (None, None) => Rule::None,
    };
    let mut work = Work {
        stream,
        rule,
        closed,
        first,
        numbers,
        digest: RowDigest::new(stream),
        kept: BooleanBufferBuilder::new(0),
        too_large: (0, None),
        invalid: (0, None),
        letters: letters.map(LetterWork::new),
    };
    let work = py.detach(|| work.run(batches).map(|()| work));
    let work = work.map_err(|failure| native_error(failure.0, &failure.1, "{}"))?;
    Ok(work.answer(py))
}

/// A failure of the whole call.
struct Failure(ErrorCode, String);

impl From<ArrowError> for Failure {
    fn from(error: ArrowError) -> Self {
        Self(
            ErrorCode::InvalidArgument,
            format!("not an Arrow IPC stream: {error}"),
        )
    }
}

struct Work<'a> {
    stream: &'a str,
    rule: Rule,
    /// Code and sentence, when the stream takes no rows at all.
    closed: Option<(String, String)>,
    /// Number of the first row; or the numbers of all.
    first: u64,
    numbers: Option<Vec<u64>>,
    digest: RowDigest,
    kept: BooleanBufferBuilder,
    too_large: Refused,
    invalid: Refused,
    letters: Option<LetterWork>,
}

struct LetterWork {
    too_large: bool,
    invalid: bool,
    said: Vec<(String, String)>,
    letters: Letters,
    messages: Vec<Vec<u8>>,
}

impl Work<'_> {
    fn run(&mut self, batches: Vec<u8>) -> Result<(), Failure> {
        let mut decoder = StreamDecoder::new();
        let mut rest = Buffer::from_vec(batches);
        while !rest.is_empty() {
            let Some(batch) = decoder.decode(&mut rest)? else {
                break;
            };
            self.take(&batch)?;
        }
        let cut_off = |error| {
            Failure(
                ErrorCode::InvalidArgument,
                format!("the Arrow IPC stream is cut off: {error}"),
            )
        };
        decoder.finish().map_err(cut_off)?;
        self.letters.as_mut().map_or(Ok(()), LetterWork::finish)
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        let before = self.kept.len();
        self.kept.append_n(batch.num_rows(), true);
        let mut digest = std::mem::replace(&mut self.digest, RowDigest::new(""));
        let mut failure = None;
        let checked = check(batch, self.stream, self.rule, &mut digest, |row| {
            if failure.is_none() {
                failure = self.refuse(before, &row).err();
            }
        });
        self.digest = digest;
        checked.map_err(|error| Failure(ErrorCode::InvalidArgument, error.to_string()))?;
        failure.map_or(Ok(()), Err)
    }

    fn refuse(&mut self, before: usize, row: &RefusedRow<'_>) -> Result<(), Failure> {
        let at = before + row.row;
        self.kept.set_bit(at, false);
        let listed = self.numbers.as_ref().and_then(|all| all.get(at).copied());
        let number = listed.unwrap_or(self.first + at as u64);
        let is_too_large = row.cause.as_ref().is_some_and(IngestError::is_too_large);
        let (code, text) = match (&row.cause, &self.closed) {
            (Some(cause), _) => {
                let code = if is_too_large {
                    ErrorCode::TooLarge
                } else {
                    ErrorCode::InvalidArgument
                };
                let text = cause.clone().in_row(number as usize).to_string();
                (code.as_str().to_owned(), text)
            }
            (None, Some((code, text))) => (code.clone(), text.clone()),
            (None, None) => (String::new(), String::new()),
        };
        let kind = if is_too_large {
            &mut self.too_large
        } else {
            &mut self.invalid
        };
        kind.0 += 1;
        if let Some(letters) = &mut self.letters {
            letters.take(row, is_too_large, number, (&code, &text))?;
        }
        let bytes = row.record.check(usize::MAX).unwrap_or_default();
        let value_bytes = row.record.value.map_or(0, <[u8]>::len);
        kind.1
            .get_or_insert((code, text, number, bytes, value_bytes));
        Ok(())
    }

    fn answer(mut self, py: Python<'_>) -> Checked<'_> {
        let digest = PyBytes::new(py, &self.digest.value().to_le_bytes());
        let is_whole = self.too_large.0 + self.invalid.0 == 0;
        let kept = (!is_whole).then(|| PyBytes::new(py, self.kept.finish().values()));
        let (messages, cut) = self.letters.map_or((Vec::new(), 0), |letters| {
            (letters.messages, letters.letters.cut())
        });
        let messages = messages.iter().map(|bytes| PyBytes::new(py, bytes));
        (
            self.digest.rows(),
            digest,
            kept,
            self.too_large,
            self.invalid,
            messages.collect(),
            cut,
        )
    }
}

impl LetterWork {
    fn new((too_large, invalid, record_bytes, said): Wanted) -> Self {
        Self {
            too_large,
            invalid,
            said,
            letters: Letters::new(record_bytes),
            messages: Vec::new(),
        }
    }

    fn take(
        &mut self,
        row: &RefusedRow<'_>,
        is_too_large: bool,
        number: u64,
        (code, text): (&str, &str),
    ) -> Result<(), Failure> {
        let is_wanted = if is_too_large {
            self.too_large
        } else {
            self.invalid
        };
        if !is_wanted {
            return Ok(());
        }
        let number = number.to_string();
        let partition = row.partition.map(|partition| partition.to_string());
        let id = row.id.map(hex);
        let own = [
            ("row", Some(number.as_str())),
            ("error_class", Some(code)),
            ("error_message", Some(text)),
            ("partition", partition.as_deref()),
            ("subject", row.record.subject),
            (
                "reply",
                Some(row.record.reply).filter(|reply| !reply.is_empty()),
            ),
            ("id", id.as_deref()),
        ];
        let said = self
            .said
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()));
        let own = own
            .iter()
            .filter_map(|(name, text)| text.map(|text| (*name, text)));
        let from: Vec<_> = said.chain(own).collect();
        self.letters.add(&row.record, &from).map_err(|cause| {
            let text = format!("the dead letter of row {number} cannot be stored: {cause}");
            Failure(ErrorCode::TooLarge, text)
        })?;
        if self.letters.bytes() >= MESSAGE_BYTES {
            self.finish()?;
        }
        Ok(())
    }

    /// Makes a message of the letters gathered.
    fn finish(&mut self) -> Result<(), Failure> {
        let Some(batch) = self.letters.take()? else {
            return Ok(());
        };
        let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
        writer.write(&batch)?;
        self.messages.push(writer.into_inner()?);
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
