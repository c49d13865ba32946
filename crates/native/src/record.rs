//! Records as Python gives them: bytes or text, headers as a mapping or as pairs, one by one or in columns.
use bascule_client::NewRecord;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyIterator, PyString, PyTuple};
use std::ops::Deref;

/// One record.
pub(crate) struct Given<'a, 'py> {
    pub(crate) key: Option<&'a Bound<'py, PyAny>>,
    /// `None` = null.
    pub(crate) value: Option<&'a Bound<'py, PyAny>>,
    pub(crate) headers: Option<&'a Bound<'py, PyAny>>,
    pub(crate) expected_offset: i64,
    pub(crate) subject: Option<&'a str>,
    pub(crate) origin_time: Option<i64>,
}

impl Given<'_, '_> {
    /// Calls `take` with the record.
    pub(crate) fn with<T>(&self, take: impl FnOnce(&NewRecord<'_>) -> T) -> PyResult<T> {
        let key = self.key.map(bytes_of).transpose()?;
        let value = self.value.map(bytes_of).transpose()?;
        let headers = self.headers.map(pairs).transpose()?.unwrap_or_default();
        let headers: Vec<(&[u8], &[u8])> = headers
            .iter()
            .map(|(name, value)| (&name[..], &value[..]))
            .collect();
        Ok(take(&NewRecord {
            key: key.as_deref().unwrap_or_default(),
            value: value.as_deref(),
            headers: &headers,
            expected_offset: self.expected_offset,
            subject: self.subject.unwrap_or_default(),
            origin_time: self.origin_time,
        }))
    }
}

/// Records in columns, each an optional sequence as long as the values.
pub(crate) struct Columns<'py> {
    count: usize,
    values: Bound<'py, PyIterator>,
    keys: Option<Bound<'py, PyIterator>>,
    headers: Option<Bound<'py, PyIterator>>,
    partitions: Option<Bound<'py, PyIterator>>,
    subjects: Option<Bound<'py, PyIterator>>,
    origin_times: Option<Bound<'py, PyIterator>>,
}

impl<'py> Columns<'py> {
    pub(crate) fn new(
        values: &Bound<'py, PyAny>,
        keys: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let count = values.len()?;
        Ok(Self {
            count,
            values: values.try_iter()?,
            keys: column(keys, "keys", count)?,
            headers: column(headers, "headers", count)?,
            partitions: None,
            subjects: None,
            origin_times: None,
        })
    }

    /// The same with a subject and a time at the origin for each.
    pub(crate) fn placed(
        self,
        subjects: Option<&Bound<'py, PyAny>>,
        origin_times: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            subjects: column(subjects, "subjects", self.count)?,
            origin_times: column(origin_times, "origin_times", self.count)?,
            ..self
        })
    }

    /// The same with a partition for each.
    pub(crate) fn partitioned(self, partitions: Option<&Bound<'py, PyAny>>) -> PyResult<Self> {
        Ok(Self {
            partitions: column(partitions, "partitions", self.count)?,
            ..self
        })
    }

    /// Gives the next record, and its partition, to `take`; false when there is none.
    pub(crate) fn next(
        &mut self,
        take: impl FnOnce(&NewRecord<'_>, Option<i64>) -> PyResult<()>,
    ) -> PyResult<bool> {
        let Some(value) = self.values.next().transpose()? else {
            return Ok(false);
        };
        let (key, headers) = (cell(&mut self.keys)?, cell(&mut self.headers)?);
        let subject = cell(&mut self.subjects)?;
        let subject = subject.as_ref().map(|subject| subject.cast::<PyString>());
        let number = |cell: Option<Bound<'py, PyAny>>| cell.map(|cell| cell.extract()).transpose();
        let partition = number(cell(&mut self.partitions)?)?;
        let given = Given {
            key: key.as_ref(),
            value: Some(&value).filter(|value| !value.is_none()),
            headers: headers.as_ref(),
            expected_offset: -1,
            subject: subject
                .transpose()?
                .map(|subject| subject.to_str())
                .transpose()?,
            origin_time: number(cell(&mut self.origin_times)?)?,
        };
        given.with(|record| take(record, partition))??;
        Ok(true)
    }
}

/// The next cell of a column, unless there is none or it is `None`.
fn cell<'py>(column: &mut Option<Bound<'py, PyIterator>>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let cell = column.as_mut().and_then(Iterator::next).transpose()?;
    Ok(cell.filter(|cell| !cell.is_none()))
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

/// Headers: a mapping of names and values, or pairs of them.
fn pairs(headers: &Bound<'_, PyAny>) -> PyResult<Vec<(Vec<u8>, Vec<u8>)>> {
    let pair = |name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>| {
        Ok((header_name(name)?, bytes_of(value)?.to_vec()))
    };
    if let Ok(mapping) = headers.cast::<PyDict>() {
        return mapping
            .iter()
            .map(|(name, value)| pair(&name, &value))
            .collect();
    }
    let entries = headers.try_iter()?;
    entries
        .map(|entry| {
            let entry = entry?;
            let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                entry.cast::<PyTuple>()?.extract()?;
            pair(&name, &value)
        })
        .collect()
}

/// A name: text, in which lone surrogates stand for bytes that are not UTF-8, or bytes.
fn header_name(name: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = name.cast::<PyString>() {
        return if let Ok(text) = text.to_str() {
            Ok(text.as_bytes().to_vec())
        } else {
            let bytes = text.call_method1("encode", ("utf-8", "surrogateescape"))?;
            Ok(bytes.cast::<PyBytes>()?.as_bytes().to_vec())
        };
    }
    Ok(bytes_of(name)?.to_vec())
}

/// Bytes of a Python object: borrowed from `bytes` and text, copied from `bytearray`, which may change meanwhile.
pub(crate) enum Contents<'a> {
    Borrowed(&'a [u8]),
    Copied(Vec<u8>),
}
impl Deref for Contents<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Copied(bytes) => bytes,
        }
    }
}

/// `bytes`, `bytearray`, or text as UTF-8.
pub(crate) fn bytes_of<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Contents<'a>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Contents::Borrowed(bytes.as_bytes()));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Contents::Borrowed(text.to_str()?.as_bytes()));
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(Contents::Copied(bytes.to_vec()));
    }
    Err(PyTypeError::new_err(format!(
        "keys, values and header values are bytes or text, not {}",
        object.get_type().name()?
    )))
}
