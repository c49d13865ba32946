//! `_native.Engine`: converts and forwards.
use crate::events::{KindAndFields, Reply, rejection, to_python};
use crate::failure::native_error;
use bascule_broker::consensus::Proposal;
use bascule_broker::engine::{
    Engine as Broker, EngineError, EngineSettings, Question, ViewChanges, access_allows as decide,
};
use bascule_broker::http::HttpSettings;
use bascule_broker::iggy::IggyHttpSettings;
use bascule_broker::lag::QueryPosition;
use bascule_broker::nats::NatsSettings;
use bascule_broker::partition::{EndReason, PartitionSpec, RoleChanges};
use bascule_broker::stage::{ConfirmRequest, SinkChanges};
use bascule_broker::tls::TlsSettings;
use bascule_broker::watchdog::WatchSettings;
use bascule_client::ErrorCode;
use bytes::Bytes;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// (incarnation, log start, high watermark, log end, bytes, first received, last received, subscribers,
/// messages from NATS that were not stored, what of sinks needs it open)
type StatusTuple = (u64, u64, u64, u64, u64, i64, i64, u64, u64, u64, bool);

/// The data plane of one broker.
#[pyclass(frozen, module = "bascule._native")]
pub struct Engine {
    broker: Arc<Broker>,
    process: u32,
}

impl Engine {
    /// Threads do not survive a fork: a child must not touch the parent's data plane.
    fn broker(&self) -> PyResult<&Broker> {
        if std::process::id() == self.process {
            return Ok(&self.broker);
        }
        Err(PyRuntimeError::new_err(
            "the engine cannot be used in a forked child: start child processes with the `spawn` method",
        ))
    }

    /// Runs `work` with the interpreter released.
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Broker) -> Result<T, EngineError> + Send,
    ) -> PyResult<T> {
        let broker = self.broker()?;
        py.detach(|| work(broker)).map_err(|error| raised(&error))
    }
}

pub(crate) fn raised(error: &EngineError) -> PyErr {
    native_error(error.code, &error.text, &error.details.to_string())
}

fn document<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> PyResult<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        native_error(
            ErrorCode::InvalidArgument,
            &format!("{what}: {error}"),
            "{}",
        )
    })
}

#[pymethods]
impl Engine {
    #[new]
    fn new(py: Python<'_>, settings: &[u8]) -> PyResult<Self> {
        let settings: EngineSettings = document("engine settings", settings)?;
        let broker = py
            .detach(|| Broker::new(&settings))
            .map_err(|error| raised(&error))?;
        Ok(Self {
            broker: Arc::new(broker),
            process: std::process::id(),
        })
    }

    fn bind(&self, py: Python<'_>, host: &str, port: u16) -> PyResult<u16> {
        self.detached(py, |broker| broker.bind(host, port))
    }

    fn listen(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, Broker::listen)
    }

    fn serve_http(&self, py: Python<'_>, host: &str, port: u16, settings: &[u8]) -> PyResult<u16> {
        let settings: HttpSettings = document("HTTP settings", settings)?;
        self.detached(py, |broker| broker.serve_http(host, port, settings))
    }

    fn serve_iggy(&self, py: Python<'_>, host: &str, port: u16) -> PyResult<u16> {
        self.detached(py, |broker| broker.serve_iggy(host, port))
    }

    fn serve_iggy_quic(&self, py: Python<'_>, host: &str, port: u16) -> PyResult<u16> {
        self.detached(py, |broker| broker.serve_iggy_quic(host, port))
    }

    fn serve_iggy_http(
        &self,
        py: Python<'_>,
        host: &str,
        port: u16,
        settings: &[u8],
    ) -> PyResult<u16> {
        let settings: IggyHttpSettings = document("HTTP settings", settings)?;
        self.detached(py, |broker| broker.serve_iggy_http(host, port, settings))
    }

    fn set_stage(&self, stage: &str) -> PyResult<()> {
        self.broker()?.set_stage(stage);
        Ok(())
    }

    fn require_nats(&self) -> PyResult<()> {
        self.broker()?.require_nats();
        Ok(())
    }

    fn report(&self, values: &[u8]) -> PyResult<()> {
        let values: HashMap<String, u64> = document("reported values", values)?;
        self.broker()?
            .report(&values)
            .map_err(|error| raised(&error))
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python by value
    fn set_query(
        &self,
        query: &str,
        stream: (String, String),
        positions: Vec<(i32, u64, u64)>,
        hold_ms: u32,
    ) -> PyResult<()> {
        let positions = positions
            .into_iter()
            .map(|(partition, incarnation, next)| QueryPosition {
                partition,
                incarnation,
                next,
            });
        self.broker()?
            .set_query(query, (&stream.0, &stream.1), positions.collect(), hold_ms)
            .map_err(|error| raised(&error))
    }

    fn lags<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let lags = self.detached(py, Broker::lags)?;
        Ok(PyBytes::new(py, lags.to_string().as_bytes()))
    }

    fn checks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let checks = self.detached(py, |broker| Ok(serde_json::json!(broker.checks())))?;
        Ok(PyBytes::new(py, checks.to_string().as_bytes()))
    }

    fn load_tls<'py>(&self, py: Python<'py>, settings: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let settings: TlsSettings = document("TLS settings", settings)?;
        let loaded = self.detached(py, |broker| broker.load_tls(&settings))?;
        let text = serde_json::json!(loaded).to_string();
        Ok(PyBytes::new(py, text.as_bytes()))
    }

    fn publish_access(&self, py: Python<'_>, table: &[u8]) -> PyResult<()> {
        self.detached(py, |broker| broker.publish_access(table))
    }

    fn set_serving(&self, serving: bool) -> PyResult<()> {
        self.broker()?.set_serving(serving);
        Ok(())
    }

    fn watch(&self, settings: &[u8]) -> PyResult<(i32, i32)> {
        let settings: WatchSettings = document("watch settings", settings)?;
        self.broker()?;
        let descriptors = self
            .broker
            .watch(settings)
            .map_err(|error| raised(&error))?;
        Ok((descriptors.signals, descriptors.stacks))
    }

    fn beat(&self) -> PyResult<()> {
        self.broker()?.event_loop().beat();
        Ok(())
    }

    fn set_group_versions(&self, versions: Vec<(String, u64)>) -> PyResult<()> {
        self.broker()?.groups().set(versions);
        Ok(())
    }

    fn connect_nats(&self, py: Python<'_>, settings: &[u8]) -> PyResult<()> {
        let settings: NatsSettings = document("NATS settings", settings)?;
        self.detached(py, |broker| broker.connect_nats(settings))
    }

    fn new_data_key(&self, py: Python<'_>, number: u32) -> PyResult<(String, String)> {
        self.detached(py, |broker| broker.new_data_key(number))
    }

    fn nats_connected(&self) -> PyResult<bool> {
        Ok(self.broker()?.nats().is_connected())
    }

    fn nats_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let state = self.broker()?.nats().state();
        let text = serde_json::json!(state).to_string();
        Ok(PyBytes::new(py, text.as_bytes()))
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python by value
    fn nats_partitions<'py>(
        &self,
        py: Python<'py>,
        incarnations: Vec<u64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let partitions = self.broker()?.nats().partitions(&incarnations);
        Ok(PyBytes::new(py, partitions.to_string().as_bytes()))
    }

    fn close(&self, py: Python<'_>, drain_ms: u64) -> PyResult<()> {
        self.detached(py, |broker| {
            broker.close(Duration::from_millis(drain_ms));
            Ok(())
        })
    }

    fn fileno(&self) -> PyResult<i32> {
        Ok(self.broker()?.events().descriptor())
    }

    fn poll<'py>(&self, py: Python<'py>, max_events: usize) -> PyResult<Vec<KindAndFields<'py>>> {
        let events = self.broker()?.events().poll(max_events);
        let convert = |event| to_python(py, event);
        events.into_iter().map(convert).collect()
    }

    fn is_awaited(&self, request_id: u64) -> PyResult<bool> {
        Ok(self.broker()?.events().is_awaited(request_id))
    }

    fn respond(&self, replies: Vec<Reply>) -> PyResult<()> {
        let events = self.broker()?.events();
        for reply in replies {
            match reply {
                Reply::Answer(id, body) => events.respond(id, Ok(Bytes::from(body))),
                Reply::Rejection(id, status, message, code, details, iggy_status) => {
                    let mut rejection = rejection(status, message, code.as_deref(), &details)?;
                    rejection.iggy_status = iggy_status;
                    events.respond(id, Err(rejection));
                }
            }
        }
        Ok(())
    }

    fn metadata_open<'py>(&self, py: Python<'py>) -> PyResult<(u64, Bound<'py, PyBytes>, u64)> {
        let (index, state, last) = self.detached(py, Broker::metadata_open)?;
        Ok((index, PyBytes::new(py, &state), last))
    }

    fn propose(
        &self,
        py: Python<'_>,
        entries: Vec<(u64, Vec<u8>)>,
        timeout_ms: u64,
    ) -> PyResult<()> {
        let proposals = entries
            .into_iter()
            .map(|(id, bytes)| Proposal {
                id,
                bytes: bytes.into(),
            })
            .collect();
        self.detached(py, |broker| {
            broker.propose(proposals, Duration::from_millis(timeout_ms))
        })
    }

    fn read_barrier(&self, py: Python<'_>, barrier_id: u64) -> PyResult<()> {
        self.detached(py, |broker| broker.read_barrier(barrier_id))
    }

    fn save_snapshot(&self, py: Python<'_>, index: u64, snapshot: &[u8]) -> PyResult<()> {
        self.detached(py, |broker| broker.save_snapshot(index, snapshot))
    }

    fn cluster_run<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let run = self.detached(py, Broker::cluster_run)?;
        let text = serde_json::json!(run).to_string();
        Ok(PyBytes::new(py, text.as_bytes()))
    }

    fn store_boot_epoch(&self, py: Python<'_>, boot_epoch: u64) -> PyResult<()> {
        self.detached(py, |broker| broker.store_boot_epoch(boot_epoch))
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python by value
    fn know_brokers(&self, py: Python<'_>, runs: Vec<(u64, u64, u64, bool)>) -> PyResult<()> {
        self.detached(py, |broker| broker.know_brokers(&runs))
    }

    fn begin_run(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, Broker::begin_run)
    }

    fn stop_leading(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, |broker| {
            broker.stop_leading();
            Ok(())
        })
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python by value
    fn watch_brokers(&self, py: Python<'_>, term: u64, ended: Vec<(u64, u64)>) -> PyResult<()> {
        self.detached(py, |broker| broker.watch_brokers(term, &ended))
    }

    fn set_roles(&self, py: Python<'_>, index: u64, changes: &[u8]) -> PyResult<()> {
        let changes: RoleChanges = document("roles", changes)?;
        self.detached(py, |broker| broker.set_roles(index, changes))
    }

    fn cluster_status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let status = self.detached(py, Broker::cluster_status)?;
        let text = serde_json::json!(status).to_string();
        Ok(PyBytes::new(py, text.as_bytes()))
    }

    fn open(
        &self,
        py: Python<'_>,
        partitions: &[u8],
    ) -> PyResult<Vec<(u64, &'static str, String)>> {
        let specs: Vec<PartitionSpec> = document("partition specs", partitions)?;
        let failures = self.detached(py, |broker| broker.open(specs))?;
        let rows = failures.into_iter();
        Ok(rows
            .map(|(incarnation, code, text)| (incarnation, code.as_str(), text))
            .collect())
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python by value
    fn lead(&self, py: Python<'_>, partitions: Vec<(u64, u64)>) -> PyResult<()> {
        self.detached(py, |broker| broker.lead(&partitions))
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python by value
    fn close_partitions(&self, py: Python<'_>, incarnations: Vec<u64>) -> PyResult<()> {
        self.detached(py, |broker| broker.end(&incarnations, EndReason::Paused))
    }

    #[pyo3(signature = (incarnations, *, at_once = false))]
    #[allow(clippy::needless_pass_by_value)] // extracted from Python by value
    fn delete_partitions(
        &self,
        py: Python<'_>,
        incarnations: Vec<u64>,
        at_once: bool,
    ) -> PyResult<()> {
        self.detached(py, |broker| {
            if at_once {
                broker.delete_now(&incarnations)
            } else {
                broker.end(&incarnations, EndReason::Deleted)
            }
        })
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python by value
    fn keep_partitions(&self, py: Python<'_>, incarnations: Vec<u64>) -> PyResult<()> {
        self.detached(py, |broker| broker.keep(&incarnations))
    }

    fn is_full(&self, py: Python<'_>) -> PyResult<bool> {
        self.detached(py, |broker| Ok(broker.is_full()))
    }

    fn publish_view(&self, py: Python<'_>, version: u64, changes: &[u8]) -> PyResult<()> {
        let changes: ViewChanges = document("view changes", changes)?;
        self.detached(py, |broker| broker.publish_view(version, changes))
    }

    fn append(
        &self,
        py: Python<'_>,
        incarnation: u64,
        values: Vec<Vec<u8>>,
        timeout_ms: u64,
    ) -> PyResult<u64> {
        let timeout = Duration::from_millis(timeout_ms);
        self.detached(py, |broker| broker.append(incarnation, values, timeout))
    }

    fn tail<'py>(
        &self,
        py: Python<'py>,
        incarnation: u64,
        count: u64,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let values = self.detached(py, |broker| broker.tail(incarnation, count))?;
        Ok(values.iter().map(|value| PyBytes::new(py, value)).collect())
    }

    fn set_sinks(&self, py: Python<'_>, version: u64, changes: &[u8]) -> PyResult<()> {
        let changes: SinkChanges = document("sink changes", changes)?;
        self.detached(py, |broker| broker.set_sinks(version, changes))
    }

    fn confirm_stage<'py>(&self, py: Python<'py>, request: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let request: ConfirmRequest = document("what is claimed to be staged", request)?;
        let answer = self.detached(py, |broker| broker.confirm_stage(&request))?;
        let text = serde_json::json!(answer).to_string();
        Ok(PyBytes::new(py, text.as_bytes()))
    }

    fn staged<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let staged = self.detached(py, |broker| Ok(broker.staged()))?;
        let text = serde_json::json!(staged).to_string();
        Ok(PyBytes::new(py, text.as_bytes()))
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python by value
    fn status(&self, incarnations: Vec<u64>) -> PyResult<Vec<StatusTuple>> {
        let status = self.broker()?.status(&incarnations);
        let row = |(id, s): (u64, bascule_broker::partition::PartitionStatus)| {
            (
                id,
                s.log_start,
                s.high_watermark,
                s.log_end,
                s.bytes,
                s.first_received,
                s.last_received,
                s.subscribers,
                s.nats_dropped,
                s.held,
                s.may_read,
            )
        };
        Ok(status.into_iter().map(row).collect())
    }

    fn scrub(
        &self,
        py: Python<'_>,
        incarnation: u64,
        bytes_per_second: u64,
    ) -> PyResult<(u64, u64, u64, bool)> {
        let done = self.detached(py, |broker| broker.scrub(incarnation, bytes_per_second))?;
        Ok((done.segments, done.bytes, done.damaged, done.complete))
    }

    fn pause_scrubs(&self, paused: bool) -> PyResult<()> {
        self.broker()?.pause_scrubs(paused);
        Ok(())
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python by value
    fn damage<'py>(
        &self,
        py: Python<'py>,
        incarnations: Vec<u64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let damage = self.broker()?.damage(&incarnations);
        Ok(PyBytes::new(py, damage.to_string().as_bytes()))
    }

    fn segment_starts(&self, incarnation: u64) -> PyResult<Vec<u64>> {
        Ok(self.broker()?.segment_starts(incarnation))
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let statistics = self.detached(py, |broker| Ok(broker.statistics()))?;
        Ok(PyBytes::new(py, statistics.to_string().as_bytes()))
    }
}

#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // extracted from Python by value
pub(crate) fn access_allows(
    py: Python<'_>,
    table: &[u8],
    questions: Vec<Question>,
) -> PyResult<Vec<bool>> {
    py.detach(|| decide(table, &questions))
        .map_err(|error| raised(&error))
}
