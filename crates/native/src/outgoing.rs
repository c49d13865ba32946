//! `Outgoing`: records of Python, framed as they come.
use crate::failure::native_error;
use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyInt, PyIterator, PyList, PyString};

/// Most records of one batch.
const MOST_RECORDS: usize = 100_000;

/// A batch on its way out. While it is published, it is locked: every method waits for that.
#[pyclass(frozen, module = "bascule._native")]
pub(crate) struct Outgoing(pub(crate) Mutex<bascule_client::Outgoing>);

#[pymethods]
impl Outgoing {
    #[new]
    fn new(stream: &str, partition: i32, ack_policy: i32, max_in_flight: usize) -> Self {
        let batch = bascule_client::Outgoing::new(stream, partition, ack_policy, max_in_flight);
        Self(Mutex::new(batch))
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.0.lock().len())
    }

    fn push(
        &self,
        key: Option<&Bound<'_, PyAny>>,
        value: &Bound<'_, PyAny>,
        headers: Option<&Bound<'_, PyAny>>,
        expected_offset: i64,
    ) -> PyResult<usize> {
        let mut batch = self.unpublished()?;
        if batch.len() >= MOST_RECORDS {
            return Err(too_many(batch.len() + 1));
        }
        push(&mut batch, key, value, headers, expected_offset)?;
        Ok(batch.bytes())
    }

    fn fill(
        &self,
        keys: Option<&Bound<'_, PyAny>>,
        values: &Bound<'_, PyAny>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let mut batch = self.unpublished()?;
        let count = values.len()?;
        if !(1..=MOST_RECORDS).contains(&(batch.len() + count)) {
            return Err(too_many(batch.len() + count));
        }
        let mut keys = column(keys, "keys", count)?;
        let mut headers = column(headers, "headers", count)?;
        for value in values.try_iter()? {
            let value = value?;
            let key = keys.as_mut().and_then(Iterator::next).transpose()?;
            let key = key.filter(|key| !key.is_none());
            let headers = headers.as_mut().and_then(Iterator::next).transpose()?;
            let headers = headers.filter(|headers| !headers.is_none());
            push(&mut batch, key.as_ref(), &value, headers.as_ref(), -1)?;
        }
        Ok(batch.bytes())
    }

    fn places<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let places = py.detach(|| self.0.lock().places().to_vec());
        // Records that were stored together have one time: one object of it does for all.
        let mut last: Option<(i64, Bound<'py, PyInt>)> = None;
        let pairs = places.into_iter().map(|(offset, time)| {
            let known = last.take().filter(|(known, _)| *known == time);
            let (_, object) = last.insert(known.unwrap_or_else(|| (time, PyInt::new(py, time))));
            (offset, Bound::clone(object))
        });
        PyList::new(py, pairs.collect::<Vec<_>>())
    }
}

impl Outgoing {
    /// The batch, unless it is being published: nothing may wait for that while it holds the interpreter.
    fn unpublished(&self) -> PyResult<parking_lot::MutexGuard<'_, bascule_client::Outgoing>> {
        self.0
            .try_lock()
            .ok_or_else(|| native_error("invalid_argument", "the batch is being published", "{}"))
    }
}

fn too_many(count: usize) -> PyErr {
    let text = format!("a batch has 1 to {MOST_RECORDS} records, not {count}");
    native_error("invalid_argument", &text, "{}")
}

/// An optional sequence as long as the values.
fn column<'py>(
    sequence: Option<&Bound<'py, PyAny>>,
    name: &str,
    count: usize,
) -> PyResult<Option<Bound<'py, PyIterator>>> {
    let Some(sequence) = sequence else {
        return Ok(None);
    };
    if sequence.len()? != count {
        return Err(PyValueError::new_err(format!(
            "{name} has {} items, values has {count}",
            sequence.len()?
        )));
    }
    sequence.try_iter().map(Some)
}

fn push(
    batch: &mut bascule_client::Outgoing,
    key: Option<&Bound<'_, PyAny>>,
    value: &Bound<'_, PyAny>,
    headers: Option<&Bound<'_, PyAny>>,
    expected_offset: i64,
) -> PyResult<()> {
    let key = key.map(contents).transpose()?;
    let value = contents(value)?;
    let key = key.as_ref().map_or(&[][..], Contents::as_slice);
    let Some(headers) = headers else {
        batch.push(key, value.as_slice(), &[], expected_offset);
        return Ok(());
    };
    let mut entries = Vec::new();
    for (name, value) in headers.cast::<PyDict>()?.iter() {
        entries.push((
            name.cast_into::<PyString>()?.to_string(),
            contents(&value)?.as_slice().to_vec(),
        ));
    }
    let entries: Vec<(&str, &[u8])> = entries
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_slice()))
        .collect();
    batch.push(key, value.as_slice(), &entries, expected_offset);
    Ok(())
}

/// Bytes of a Python object: borrowed from `bytes`, copied from `bytearray`, which may change meanwhile.
enum Contents<'a> {
    Borrowed(&'a [u8]),
    Copied(Vec<u8>),
}
impl Contents<'_> {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Copied(bytes) => bytes,
        }
    }
}

fn contents<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Contents<'a>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Contents::Borrowed(bytes.as_bytes()));
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(Contents::Copied(bytes.to_vec()));
    }
    Err(PyTypeError::new_err(format!(
        "keys, values and header values are bytes, not {}",
        object.get_type().name()?
    )))
}
