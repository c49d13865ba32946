//! Events and replies as they cross the seam; `python/bascule/_seam.py` has the same types.
use crate::failure::native_error;
use bascule_broker::events::{Event, Rejection, Request};
use bascule_client::ErrorCode;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use serde_json::Value;

/// The kind of an event, and its fields in order.
pub(crate) type KindAndFields<'py> = (&'static str, Bound<'py, PyTuple>);

/// How the control plane answers a request.
#[derive(FromPyObject)]
pub(crate) enum Reply {
    /// (request id, status code, status message, error code, JSON details, status of Iggy)
    Rejection(u64, i32, String, Option<String>, Vec<u8>, Option<u32>),
    /// (request id, message)
    Answer(u64, Vec<u8>),
}

pub(crate) fn to_python(py: Python<'_>, event: Event) -> PyResult<KindAndFields<'_>> {
    Ok(match event {
        Event::Request(request) => ("request", request_fields(py, request)?),
        Event::Committed {
            index,
            entry,
            proposal,
        } => (
            "committed",
            (index, PyBytes::new(py, &entry), proposal).into_pyobject(py)?,
        ),
        Event::Installed { index, state } => (
            "installed",
            (index, PyBytes::new(py, &state)).into_pyobject(py)?,
        ),
        Event::Expired { broker, boot_epoch } => {
            ("expired", (broker, boot_epoch).into_pyobject(py)?)
        }
        Event::Stopped {
            broker,
            boot_epoch,
            index,
        } => ("stopped", (broker, boot_epoch, index).into_pyobject(py)?),
        Event::Failed {
            proposal,
            code,
            message,
        } => (
            "failed",
            (proposal, code.as_str(), message).into_pyobject(py)?,
        ),
        Event::Barrier { id, index } => ("barrier", (id, index).into_pyobject(py)?),
        Event::Office { term, held } => ("office", (term, held).into_pyobject(py)?),
        Event::Partition {
            incarnation,
            number,
            change,
            message,
            fields,
        } => {
            let fields = json_bytes(py, &fields);
            let values = (incarnation, number, change.name(), message, fields);
            ("partition", values.into_pyobject(py)?)
        }
        Event::Nats {
            change,
            message,
            fields,
            count,
        } => {
            let values = (change.name(), message, json_bytes(py, &fields), count);
            ("nats", values.into_pyobject(py)?)
        }
        Event::Log {
            level,
            target,
            message,
            fields,
        } => {
            let values = (level as u8, target, message, json_bytes(py, &fields));
            ("log", values.into_pyobject(py)?)
        }
    })
}

fn request_fields(py: Python<'_>, request: Request) -> PyResult<Bound<'_, PyTuple>> {
    let body = PyBytes::new(py, &request.body);
    let left_ms = request
        .timeout
        .map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
    let caller = request.caller;
    (
        request.id,
        request.method,
        body,
        caller.address,
        caller.name,
        left_ms,
    )
        .into_pyobject(py)
}

fn json_bytes<'py>(py: Python<'py>, value: &Value) -> Bound<'py, PyBytes> {
    PyBytes::new(py, value.to_string().as_bytes())
}

/// The rejection that a reply has.
pub(crate) fn rejection(
    status: i32,
    message: String,
    code: Option<&str>,
    details: &[u8],
) -> PyResult<Rejection> {
    let invalid = |text: String| native_error(ErrorCode::InvalidArgument, &text, "{}");
    let parse = |name| {
        ErrorCode::parse(name).ok_or_else(|| invalid(format!("{name:?} is not an error code")))
    };
    Ok(Rejection {
        status,
        message,
        code: code.map(parse).transpose()?,
        details: serde_json::from_slice(details)
            .map_err(|error| invalid(format!("details of an error: {error}")))?,
        iggy_status: None,
    })
}
