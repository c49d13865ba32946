//! `Outgoing`, `Spread` and `Partitioner`: records of Python, framed as they come.
use crate::failure::native_error;
use crate::record::{Columns, Given, bytes_of};
use bascule_client::ErrorCode;
use bascule_client::{Place, Rule};
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList};
use std::num::NonZeroU32;
use std::sync::Arc;

/// Most records of one batch.
const MAX_RECORDS: usize = 100_000;

/// A batch on its way out. While it is published, it is locked: every method waits for that.
#[pyclass(frozen, module = "bascule._native")]
pub(crate) struct Outgoing(pub(crate) Arc<Mutex<bascule_client::PublishBatch>>);

#[pymethods]
impl Outgoing {
    #[new]
    fn new(stream: &str, partition: i32, ack_policy: i32, max_in_flight: usize) -> Self {
        let batch = bascule_client::PublishBatch::new(stream, partition, ack_policy, max_in_flight);
        Self(Arc::new(Mutex::new(batch)))
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.0.lock().len())
    }

    #[getter]
    fn partition(&self, py: Python<'_>) -> i32 {
        py.detach(|| self.0.lock().partition())
    }

    // Without the text Python would show the default −1 as `...`.
    #[pyo3(
        signature = (key, value, headers, expected_offset=-1, subject=None, origin_time=None),
        text_signature = "($self, key, value, headers, expected_offset=-1, subject=None, origin_time=None)"
    )]
    fn push(
        &self,
        key: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        expected_offset: i64,
        subject: Option<&str>,
        origin_time: Option<i64>,
    ) -> PyResult<usize> {
        let mut batch = unpublished(&self.0)?;
        check_count(batch.len() + 1)?;
        let given = Given {
            key,
            value,
            headers,
            expected_offset,
            subject,
            origin_time,
        };
        given.with(|record| batch.push(record))?;
        Ok(batch.bytes())
    }

    #[pyo3(signature = (keys, values, headers, subjects=None, origin_times=None))]
    fn fill(
        &self,
        keys: Option<&Bound<'_, PyAny>>,
        values: &Bound<'_, PyAny>,
        headers: Option<&Bound<'_, PyAny>>,
        subjects: Option<&Bound<'_, PyAny>>,
        origin_times: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let mut batch = unpublished(&self.0)?;
        check_count(batch.len() + values.len()?)?;
        let mut columns = Columns::new(values, keys, headers)?.placed(subjects, origin_times)?;
        while columns.next(|record, _| {
            batch.push(record);
            Ok(())
        })? {}
        Ok(batch.bytes())
    }

    fn places<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let places = py.detach(|| {
            let batch = self.0.lock();
            let partition = batch.partition();
            let place = |&(offset, timestamp): &(i64, i64)| Place {
                offset,
                timestamp,
                partition,
            };
            batch.places().iter().map(place).collect::<Vec<_>>()
        });
        listed(py, places)
    }
}

/// Records for several partitions of one stream.
#[pyclass(frozen, module = "bascule._native")]
pub(crate) struct Spread(Mutex<bascule_client::Spread>);

#[pymethods]
impl Spread {
    #[new]
    fn new(stream: &str, partitioner: &Partitioner, ack_policy: i32, max_in_flight: usize) -> Self {
        let chooser = partitioner.0.clone();
        let spread = bascule_client::Spread::new(stream, chooser, ack_policy, max_in_flight);
        Self(Mutex::new(spread))
    }

    fn __len__(&self) -> usize {
        self.0.lock().len()
    }

    #[pyo3(signature = (key, value, headers, partition=None))]
    fn push(
        &self,
        key: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        partition: Option<i64>,
    ) -> PyResult<usize> {
        let mut spread = self.0.lock();
        check_count(spread.len() + 1)?;
        let given = Given {
            key,
            value,
            headers,
            expected_offset: -1,
            subject: None,
            origin_time: None,
        };
        given.with(|record| push_to(&mut spread, record, partition))??;
        Ok(spread.bytes())
    }

    #[pyo3(signature = (keys, values, headers, partitions=None, subjects=None, origin_times=None))]
    fn fill(
        &self,
        keys: Option<&Bound<'_, PyAny>>,
        values: &Bound<'_, PyAny>,
        headers: Option<&Bound<'_, PyAny>>,
        partitions: Option<&Bound<'_, PyAny>>,
        subjects: Option<&Bound<'_, PyAny>>,
        origin_times: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let mut spread = self.0.lock();
        check_count(spread.len() + values.len()?)?;
        let columns = Columns::new(values, keys, headers)?.placed(subjects, origin_times)?;
        let mut columns = columns.partitioned(partitions)?;
        while columns.next(|record, partition| push_to(&mut spread, record, partition))? {}
        Ok(spread.bytes())
    }

    #[getter]
    fn partitioner(&self) -> Partitioner {
        Partitioner(self.0.lock().partitioner().clone())
    }

    fn parts(&self) -> Vec<Outgoing> {
        let spread = self.0.lock();
        spread.parts().iter().cloned().map(Outgoing).collect()
    }

    fn partition_of(&self, index: usize) -> Option<i32> {
        self.0.lock().partition_of(index)
    }

    fn position(&self, partition: u32, index: usize) -> Option<usize> {
        self.0.lock().position(partition, index)
    }

    fn places<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let places = py.detach(|| self.0.lock().places());
        listed(py, places)
    }
}

/// Chooses partitions.
#[pyclass(frozen, module = "bascule._native")]
pub(crate) struct Partitioner(Arc<bascule_client::Partitioner>);

#[pymethods]
impl Partitioner {
    #[new]
    fn new(partitions: NonZeroU32, round_robin: bool) -> Self {
        let rule = if round_robin {
            Rule::RoundRobin
        } else {
            Rule::Key
        };
        Self(Arc::new(bascule_client::Partitioner::new(rule, partitions)))
    }

    #[getter]
    fn partitions(&self) -> NonZeroU32 {
        self.0.partitions()
    }

    fn choose(
        &self,
        key: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u32> {
        let (key, value) = (
            key.map(bytes_of).transpose()?,
            value.map(bytes_of).transpose()?,
        );
        let key = key.as_deref().unwrap_or_default();
        Ok(self.0.choose(key, value.map_or(0, |value| value.len())))
    }
}

/// The batch, unless it is being published: nothing may wait for that while it holds the interpreter.
fn unpublished(
    batch: &Mutex<bascule_client::PublishBatch>,
) -> PyResult<MutexGuard<'_, bascule_client::PublishBatch>> {
    batch.try_lock().ok_or_else(|| {
        native_error(
            ErrorCode::InvalidArgument,
            "the batch is being published",
            "{}",
        )
    })
}

fn check_count(count: usize) -> PyResult<()> {
    if (1..=MAX_RECORDS).contains(&count) {
        return Ok(());
    }
    let text = format!("a batch has 1 to {MAX_RECORDS} records, not {count}");
    Err(native_error(ErrorCode::InvalidArgument, &text, "{}"))
}

fn push_to(
    spread: &mut bascule_client::Spread,
    record: &bascule_client::NewRecord<'_>,
    partition: Option<i64>,
) -> PyResult<()> {
    // A number that does not fit into u32 is not a partition either.
    let number = partition.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    if spread.push(record, number) {
        return Ok(());
    }
    let most = spread.partitioner().partitions().get() - 1;
    let text = format!(
        "partition is {}: it must be from 0 to {most}",
        partition.unwrap_or_default()
    );
    Err(native_error(ErrorCode::InvalidArgument, &text, "{}"))
}

/// (offset, timestamp, partition) of each record. Records that were stored together have one time, and few partitions are
/// written at once: one object does for all that follow each other.
fn listed(py: Python<'_>, places: Vec<Place>) -> PyResult<Bound<'_, PyList>> {
    let (mut time, mut partition) = (Last::default(), Last::default());
    let triples = places.into_iter().map(|place| {
        (
            place.offset,
            time.object(py, place.timestamp),
            partition.object(py, i64::from(place.partition)),
        )
    });
    PyList::new(py, triples.collect::<Vec<_>>())
}

/// The last number that was made an object.
#[derive(Default)]
struct Last<'py>(Option<(i64, Bound<'py, PyInt>)>);

impl<'py> Last<'py> {
    fn object(&mut self, py: Python<'py>, number: i64) -> Bound<'py, PyInt> {
        let known = self.0.take().filter(|(known, _)| *known == number);
        let (_, object) = self
            .0
            .insert(known.unwrap_or_else(|| (number, PyInt::new(py, number))));
        object.clone()
    }
}
