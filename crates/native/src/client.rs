//! `Client`, `Subscription` and `RecordBatch`: the SDK's core. Every blocking call releases the interpreter and looks for
//! signals now and then, so that Ctrl-C works.
use crate::failure::native_error;
use crate::outgoing::Outgoing;
use arrow_array::ffi::to_ffi;
use arrow_array::{Array, StructArray};
use bascule_client::ErrorCode;
use bascule_client::{Error, Options, Producer, Records};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList, PyString, PyTuple};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

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

fn producer((id, epoch, base_sequence): (u64, u32, u32)) -> Producer {
    Producer {
        id,
        epoch,
        base_sequence,
    }
}

/// A header's name as text; bytes that are not UTF-8 as lone surrogates, as Python shows names of files.
fn header_name<'py>(py: Python<'py>, name: &[u8]) -> PyResult<Bound<'py, PyString>> {
    if let Ok(text) = std::str::from_utf8(name) {
        return Ok(PyString::new(py, text));
    }
    let text = PyBytes::new(py, name).call_method1("decode", ("utf-8", "surrogateescape"))?;
    Ok(text.cast_into()?)
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

    #[allow(clippy::needless_pass_by_value)] // extracted from Python by value
    fn publish_all(
        &self,
        py: Python<'_>,
        batches: Vec<PyRef<'_, Outgoing>>,
        producers: Vec<Option<(u64, u32, u32)>>,
        timeout_ms: i64,
    ) -> PyResult<Vec<Option<(String, String, String)>>> {
        if batches.len() != producers.len() {
            let text = format!(
                "{} producers for {} batches",
                producers.len(),
                batches.len()
            );
            return Err(native_error(ErrorCode::InvalidArgument, &text, "{}"));
        }
        let batches: Vec<_> = batches.iter().map(|batch| batch.0.clone()).collect();
        let failures = blocking(py, |patience| {
            let mut locked: Vec<_> = batches.iter().map(|batch| batch.lock()).collect();
            let producers = producers.into_iter().map(|given| given.map(producer));
            let wanted = locked.iter_mut().map(|batch| &mut **batch).zip(producers);
            self.0
                .publish_all(wanted.collect(), millis(timeout_ms), patience)
        })?;
        let to_python = |error: Error| {
            (
                error.code.to_string(),
                error.message.clone(),
                error.details_json(),
            )
        };
        Ok(failures
            .into_iter()
            .map(|failure| failure.map(to_python))
            .collect())
    }

    fn publish(
        &self,
        py: Python<'_>,
        batch: &Outgoing,
        producer: Option<(u64, u32, u32)>,
        timeout_ms: i64,
    ) -> PyResult<()> {
        let producer = producer.map(self::producer);
        blocking(py, |patience| {
            let mut batch = batch.0.lock();
            self.0
                .publish(&mut batch, producer, millis(timeout_ms), patience)
        })
    }

    #[pyo3(signature = (request, bell=None))]
    fn subscribe(
        &self,
        py: Python<'_>,
        request: &[u8],
        bell: Option<&Bell>,
    ) -> PyResult<Subscription> {
        let bell = bell.map(|bell| bell.0.clone());
        blocking(py, |patience| self.0.subscribe(request, bell, patience)).map(Subscription)
    }

    fn close(&self) {
        self.0.close();
    }
}

/// Wakes who waits for several subscriptions.
#[pyclass(frozen, module = "bascule._native")]
pub(crate) struct Bell(Arc<bascule_client::Notifier>);

#[pymethods]
impl Bell {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    fn ring(&self, py: Python<'_>) {
        py.detach(|| self.0.notify());
    }

    fn wait(&self, py: Python<'_>, seen: u64, timeout_ms: i64) -> PyResult<u64> {
        blocking(py, |patience| {
            Ok(self.0.wait(seen, millis(timeout_ms), patience))
        })
    }
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

    #[getter]
    fn incarnation(&self) -> u64 {
        self.0.incarnation()
    }

    #[getter]
    fn start(&self) -> Option<u64> {
        self.0.start_offset()
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
        let (array, schema) = exported
            .map_err(|error| native_error(ErrorCode::Internal, &error.to_string(), "{}"))?;
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
            .map(|value| value.map(|value| PyBytes::new(py, value)))
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
            let entries = PyList::empty(py);
            for (name, value) in self.0.headers(index) {
                entries.append((header_name(py, name)?, PyBytes::new(py, value)))?;
            }
            list.append(entries)?;
        }
        Ok(list)
    }

    fn replies<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let replies = self.0.replies();
        let replies = replies.map(|replies| replies.map(|reply| PyString::new(py, reply)));
        replies
            .map(|replies| PyList::new(py, replies.collect::<Vec<_>>()))
            .transpose()
    }

    fn origin_times<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let times = self.0.origin_times();
        times
            .map(|times| PyList::new(py, times.collect::<Vec<_>>()))
            .transpose()
    }
}
