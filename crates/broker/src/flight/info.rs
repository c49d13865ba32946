//! `ListFlights`, `GetFlightInfo`, `GetSchema`: streams as tables.
use super::context::FlightContext;
use super::frame::schema_bytes;
use super::refusal::{internal, invalid, read_failed};
use super::request::{End, ScanTicket, Selection, Start, parse};
use super::{range, resolve, threads};
use crate::access::Action;
use crate::names::DEFAULT_NAMESPACE;
use crate::partition::Partition;
use crate::tls::Peer;
use crate::view::{PartitionView, StreamView};
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, SchemaResult, Ticket};
use bascule_wire::flight::schema::Projection;
use bascule_wire::subject::SubjectFilter;
use bytes::Bytes;
use prost::Message;
use serde_json::json;
use std::sync::Arc;
use tonic::Status;

/// Reads a descriptor: a path `[stream]` or `[namespace, stream]`, or a JSON command.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub fn selection(descriptor: &FlightDescriptor) -> Result<Selection, Status> {
    let all = |namespace: &str, stream: &str| Selection {
        namespace: namespace.to_owned(),
        stream: stream.to_owned(),
        partitions: None,
        columns: None,
        subject: None,
        start: Start::default(),
        end: End::default(),
    };
    match (descriptor.r#type(), descriptor.path.as_slice()) {
        (DescriptorType::Path, [stream]) => Ok(all(DEFAULT_NAMESPACE, stream)),
        (DescriptorType::Path, [namespace, stream]) => Ok(all(namespace, stream)),
        (DescriptorType::Cmd, _) => parse("descriptor command", &descriptor.cmd),
        (_, path) => Err(invalid(format!(
            "descriptor path {path:?} is neither [stream] nor [namespace, stream]"
        ))),
    }
}

/// The columns asked for; the default ones when none are named.
///
/// # Errors
/// `INVALID_ARGUMENT` naming a column that does not exist or is there twice.
pub fn projection(columns: Option<&[String]>) -> Result<Projection, Status> {
    let Some(columns) = columns else {
        return Ok(Projection::default());
    };
    Projection::named(columns).map_err(|error| invalid(error.to_string()))
}

/// The subject filter asked for.
///
/// # Errors
/// `INVALID_ARGUMENT` when it is not a valid subject.
pub fn filter(subject: Option<&str>) -> Result<Option<SubjectFilter>, Status> {
    let filter = subject.map(SubjectFilter::parse).transpose();
    filter.map_err(|error| invalid(error.to_string()))
}

/// Answers `GetSchema`.
///
/// # Errors
/// `PERMISSION_DENIED`, `INVALID_ARGUMENT`, `NOT_FOUND`.
pub fn get_schema(
    context: &FlightContext,
    peer: &Peer,
    descriptor: &FlightDescriptor,
) -> Result<SchemaResult, Status> {
    let selection = selection(descriptor)?;
    authorize(context, peer, &selection)?;
    resolve::stream(
        &context.view.load(),
        &selection.namespace,
        &selection.stream,
    )?;
    let projection = projection(selection.columns.as_deref())?;
    Ok(SchemaResult {
        schema: schema_bytes(projection.schema()).map_err(|error| internal(error.to_string()))?,
    })
}

/// Answers `GetFlightInfo`: one endpoint per partition, each with a ticket for the selection, in the order asked for. An
/// encoded `FlightInfo`.
///
/// May wait for the disk when the selection names times.
///
/// # Errors
/// `PERMISSION_DENIED`, `INVALID_ARGUMENT`, `NOT_FOUND`, UNAVAILABLE, `OUT_OF_RANGE`.
pub async fn get_flight_info(
    context: &Arc<FlightContext>,
    peer: &Peer,
    descriptor: FlightDescriptor,
) -> Result<Vec<u8>, Status> {
    let selection = selection(&descriptor)?;
    authorize(context, peer, &selection)?;
    let view = context.view.load_full();
    let stream = resolve::stream(&view, &selection.namespace, &selection.stream)?;
    let context = Arc::clone(context);
    let work = move || {
        let info = flight_info(&context, &stream, &selection, descriptor)?;
        Ok(info.encode_to_vec())
    };
    threads::answer(work)
        .await
        .map_err(|error| internal(format!("planning failed: {error}")))?
}

/// Information about a stream, returned to its readers only.
fn authorize(context: &FlightContext, peer: &Peer, selection: &Selection) -> Result<(), Status> {
    let names = (selection.namespace.as_str(), selection.stream.as_str());
    resolve::authorize(context, peer, Action::Subscribe, names).map(drop)
}

/// What `ListFlights` says of a stream. Partitions that are not open here are left out of the endpoints.
///
/// # Errors
/// As of [`get_flight_info`].
pub fn listed(context: &FlightContext, stream: &StreamView) -> Result<FlightInfo, Status> {
    let open: Vec<u32> = stream
        .partitions
        .iter()
        .filter(|p| p.handle.is_some())
        .map(|p| p.number)
        .collect();
    let is_whole = open.len() == stream.partitions.len();
    let selection = Selection {
        namespace: stream.namespace.clone(),
        stream: stream.name.clone(),
        partitions: Some(open),
        columns: None,
        subject: None,
        start: Start::default(),
        end: End::default(),
    };
    let descriptor =
        FlightDescriptor::new_path(vec![stream.namespace.clone(), stream.name.clone()]);
    let info = flight_info(context, stream, &selection, descriptor)?;
    // Nobody counts the records of a partition that is paused.
    Ok(if is_whole {
        info
    } else {
        info.with_total_records(-1).with_total_bytes(-1)
    })
}

fn flight_info(
    context: &FlightContext,
    stream: &StreamView,
    selection: &Selection,
    descriptor: FlightDescriptor,
) -> Result<FlightInfo, Status> {
    let projection = projection(selection.columns.as_deref())?;
    filter(selection.subject.as_deref())?;
    let mut records = Some(0_i64);
    let mut bytes = Some(0_i64);
    let mut endpoints = Vec::with_capacity(stream.partitions.len());
    for partition in resolve::partitions(stream, selection.partitions.as_deref())? {
        let handle = resolve::readable(context, stream, partition, None)?;
        let planned = endpoint(stream, partition, &handle, selection)?;
        records = records
            .filter(|_| selection.subject.is_none())
            .and_then(|n| n.checked_add(planned.records as i64));
        bytes = bytes
            .filter(|_| planned.whole)
            .and_then(|n| n.checked_add(handle.reader().bytes() as i64));
        endpoints.push(planned.endpoint);
    }
    let info = FlightInfo::new()
        .with_descriptor(descriptor)
        .with_endpoints(endpoints)
        .with_total_records(records.unwrap_or(-1))
        .with_total_bytes(bytes.unwrap_or(-1))
        .with_ordered(false);
    let metadata = json!({"namespace": stream.namespace, "stream": stream.name, "id": stream.id, "subject": stream.subject,
        "partitions": stream.partitions.len(), "created_ns": stream.created_ns});
    let schema = schema_bytes(projection.schema()).map_err(|error| internal(error.to_string()))?;
    Ok(FlightInfo {
        schema,
        app_metadata: Bytes::from(metadata.to_string()),
        ..info
    })
}

struct Planned {
    endpoint: FlightEndpoint,
    records: u64,
    whole: bool,
}

/// One partition of a selection. Positions become numbers here, so that a ticket means the same records for ever.
fn endpoint(
    stream: &StreamView,
    partition: &PartitionView,
    handle: &Partition,
    selection: &Selection,
) -> Result<Planned, Status> {
    let reader = handle.reader();
    let what = resolve::label(stream, partition.number);
    let planned = range::resolve(&reader, selection.start, selection.end)
        .map_err(|error| read_failed(&what, &error))?;
    let ticket = ScanTicket {
        namespace: stream.namespace.clone(),
        stream: stream.name.clone(),
        partition: partition.number,
        incarnation: Some(partition.incarnation),
        expect: None,
        start: Start::Offset(planned.start),
        end: End::Offset(planned.end),
        columns: selection.columns.clone(),
        subject: selection.subject.clone(),
        wait_ms: 0,
        follow: false,
        max_rows: None,
        max_bytes: None,
    };
    let ticket = serde_json::to_vec(&ticket).map_err(|error| internal(error.to_string()))?;
    let metadata = json!({"partition": partition.number, "incarnation": partition.incarnation, "log_start": reader.log_start(),
        "high_watermark": reader.high_watermark(), "bytes": reader.bytes()});
    let whole = planned.start <= reader.log_start() && planned.end >= reader.high_watermark();
    let endpoint = FlightEndpoint::new()
        .with_ticket(Ticket::new(ticket))
        .with_app_metadata(metadata.to_string());
    Ok(Planned {
        endpoint,
        records: planned.end - planned.start,
        whole,
    })
}
