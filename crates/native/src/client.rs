//! `Client`, `Subscription` and `RecordBatch`: the SDK's core. Every blocking call releases the interpreter and looks for
//! signals now and then, so that Ctrl-C works.
use crate::failure::native_error;
use arrow_array::ffi::to_ffi;
use arrow_array::{Array, StructArray};
use bascule_client::{Error, Options, Outgoing, Records};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyCapsule, PyDict, PyList, PyString, PyTuple};
use std::ops::ControlFlow;
use std::time::Duration;

/// Most records of one `publish`.
const MOST_RECORDS: usize = 100_000;

/// Whether a signal handler raised.
fn signals(py: Python<'_>) -> PyResult<()> {
    py.check_signals()
}

/// Runs a blocking call without the interpreter; `work` gets the patience that asks for signals.
fn blocking<T, F>(py: Python<'_>, work: F) -> PyResult<T>
where
    T: Send,
    F: Send + FnOnce(&mut dyn FnMut() -> ControlFlow<()>) -> Result<T, Error>,
{
    let (result, signal) = py.detach(|| {
        let mut signal = None;
        let result = work(&mut || match Python::attach(signals) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                signal = Some(error);
                ControlFlow::Break(())
            }
        });
        (result, signal)
    });
    match signal {
        Some(signal) => Err(signal),
        None => {
            result.map_err(|error| native_error(error.code, &error.message, &error.details_json()))
        }
    }
}

fn millis(timeout_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0))
}

/// One Liftbridge connection.
#[pyclass(frozen, module = "bascule._native")]
pub(crate) struct Client(bascule_client::Client);

#[pymethods]
impl Client {
    #[new]
    fn new(py: Python<'_>, address: &str, options: &[u8]) -> PyResult<Self> {
        blocking(py, |patience| {
            let options = Options::from_json(options)?;
            bascule_client::Client::connect(address, options, patience).map(Self)
        })
    }

    fn call<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        request: &[u8],
        timeout_ms: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let answer = blocking(py, |patience| {
            self.0.call(method, request, millis(timeout_ms), patience)
        })?;
        Ok(PyBytes::new(py, &answer))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the seam's signature: plain values, one crossing"
    )]
    fn publish(
        &self,
        py: Python<'_>,
        stream: &str,
        partition: i32,
        keys: Option<&Bound<'_, PyAny>>,
        values: &Bound<'_, PyAny>,
        headers: Option<&Bound<'_, PyAny>>,
        ack_policy: i32,
        timeout_ms: i64,
    ) -> PyResult<Vec<(i64, i64)>> {
        let mut batch = self.0.outgoing(stream, partition, ack_policy);
        fill(&mut batch, keys, values, headers)?;
        blocking(py, |patience| {
            self.0.publish(batch, millis(timeout_ms), patience)
        })
    }

    fn subscribe(&self, py: Python<'_>, request: &[u8]) -> PyResult<Subscription> {
        blocking(py, |patience| self.0.subscribe(request, patience)).map(Subscription)
    }

    fn close(&self) {
        self.0.close();
    }
}

/// Copies the records of Python's sequences into a batch.
fn fill(
    batch: &mut Outgoing,
    keys: Option<&Bound<'_, PyAny>>,
    values: &Bound<'_, PyAny>,
    headers: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let count = values.len()?;
    if !(1..=MOST_RECORDS).contains(&count) {
        let text = format!("a batch has 1 to {MOST_RECORDS} records, not {count}");
        return Err(native_error("invalid_argument", &text, "{}"));
    }
    let mut keys = column(keys, "keys", count)?;
    let mut headers = column(headers, "headers", count)?;
    for value in values.try_iter()? {
        let value = value?;
        let key = keys.as_mut().and_then(Iterator::next).transpose()?;
        let key = key.filter(|key| !key.is_none());
        let headers = headers.as_mut().and_then(Iterator::next).transpose()?;
        let headers = headers.filter(|headers| !headers.is_none());
        push(batch, key.as_ref(), &value, headers.as_ref())?;
    }
    Ok(())
}

/// An optional sequence as long as the values.
fn column<'py>(
    sequence: Option<&Bound<'py, PyAny>>,
    name: &str,
    count: usize,
) -> PyResult<Option<Bound<'py, pyo3::types::PyIterator>>> {
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
    batch: &mut Outgoing,
    key: Option<&Bound<'_, PyAny>>,
    value: &Bound<'_, PyAny>,
    headers: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let key = key.map(contents).transpose()?;
    let value = contents(value)?;
    let key = key.as_ref().map_or(&[][..], Contents::as_slice);
    let Some(headers) = headers else {
        batch.push(key, value.as_slice(), &[]);
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
    batch.push(key, value.as_slice(), &entries);
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

/// An open subscription.
#[pyclass(frozen, module = "bascule._native")]
pub(crate) struct Subscription(bascule_client::Subscription);

#[pymethods]
impl Subscription {
    fn next_batch(
        &self,
        py: Python<'_>,
        max_records: usize,
        timeout_ms: i64,
    ) -> PyResult<Option<RecordBatch>> {
        let records = blocking(py, |patience| {
            self.0.next_batch(max_records, millis(timeout_ms), patience)
        })?;
        Ok(records.map(RecordBatch))
    }

    fn close(&self) {
        self.0.close();
    }
}

/// Records in columns.
#[pyclass(frozen, module = "bascule._native")]
pub(crate) struct RecordBatch(Records);

#[pymethods]
impl RecordBatch {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The Arrow `PyCapsule` interface; a requested schema is ignored, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        drop(requested_schema);
        let array = StructArray::from(self.0.arrow().clone());
        let exported = to_ffi(&array.to_data());
        let (array, schema) =
            exported.map_err(|error| native_error("internal", &error.to_string(), "{}"))?;
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
        PyTuple::new(py, [schema, array])
    }

    fn offsets(&self) -> Vec<i64> {
        self.0.offsets().to_vec()
    }

    fn timestamps(&self) -> Vec<i64> {
        self.0.timestamps().to_vec()
    }

    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys: Vec<_> = self
            .0
            .keys()
            .map(|key| key.map(|key| PyBytes::new(py, key)))
            .collect();
        PyList::new(py, keys)
    }

    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let values: Vec<_> = self
            .0
            .values()
            .map(|value| PyBytes::new(py, value))
            .collect();
        PyList::new(py, values)
    }

    fn subjects<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let subjects: Vec<_> = self
            .0
            .subjects()
            .map(|subject| PyString::new(py, subject))
            .collect();
        PyList::new(py, subjects)
    }

    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for index in 0..self.0.len() {
            let entries = PyDict::new(py);
            for (name, value) in self.0.headers(index) {
                entries.set_item(name, PyBytes::new(py, value))?;
            }
            list.append(entries)?;
        }
        Ok(list)
    }
}
