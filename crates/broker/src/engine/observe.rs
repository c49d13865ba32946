//! Observability of the engine: the HTTP listener, checks and statistics.
use super::{Engine, EngineError};
use crate::checks::Check;
use crate::holds::QueryStream;
use crate::http::{self, HttpSettings};
use crate::lag::QueryPosition;
use crate::metrics;
use bascule_wire::ErrorCode;
use std::collections::HashMap;
use std::time::{Duration, Instant};

impl Engine {
    /// Binds and answers probes and metrics over HTTP; port 0 = any free one. Returns the bound port.
    ///
    /// # Errors
    /// `address_in_use`, `address_unusable`, `closed`.
    pub fn serve_http(
        &self,
        host: &str,
        port: u16,
        settings: HttpSettings,
    ) -> Result<u16, EngineError> {
        let runtime = self.runtime()?;
        let _inside = runtime.enter();
        let (listening, bound) = http::listen(self.metrics.clone(), settings, host, port)?;
        self.state.lock().http = Some(listening);
        Ok(bound)
    }

    /// Says what the start is doing, until the broker serves.
    pub fn set_stage(&self, stage: &str) {
        self.parts.run_state.set_stage(stage);
    }

    /// From now on the broker is ready only while NATS is connected.
    pub fn require_nats(&self) {
        self.parts.run_state.set_needs_nats();
    }

    /// Takes what the control plane counts, by name; see `specs/metrics.toml`.
    ///
    /// # Errors
    /// `invalid_argument`: a name that is not one of them.
    pub fn report(&self, values: &HashMap<String, u64>) -> Result<(), EngineError> {
        let taken = self.metrics.reported.set(values);
        taken.map_err(|text| EngineError::new(ErrorCode::InvalidArgument, text))
    }

    /// Takes the positions of a query in a stream, in place of those before; none = they are forgotten.
    ///
    /// `hold_ms`: for so long the records from these positions on are kept, if the stream lets queries hold; 0 = they are not.
    ///
    /// # Errors
    /// `closed`.
    pub fn set_query(
        &self,
        query: &str,
        (namespace, stream): (&str, &str),
        positions: Vec<QueryPosition>,
        hold_ms: u32,
    ) -> Result<(), EngineError> {
        self.runtime()?;
        let key = QueryStream {
            query: query.to_owned(),
            namespace: namespace.to_owned(),
            stream: stream.to_owned(),
        };
        let holds = &self.metrics.partitions.holds;
        if hold_ms == 0 {
            holds.release(&key);
        } else {
            let needed = positions.iter().map(|at| (at.incarnation, at.next));
            let until = Instant::now() + Duration::from_millis(hold_ms.into());
            holds.set(&key, needed, until);
        }
        self.metrics.queries.set(key, positions);
        Ok(())
    }

    /// The positions and lags of consumer groups and queries, as JSON (`specs/formats/seam.md`). Waits for the disk.
    ///
    /// # Errors
    /// `closed`.
    pub fn lags(&self) -> Result<serde_json::Value, EngineError> {
        let runtime = self.runtime()?;
        let _inside = runtime.enter();
        Ok(serde_json::json!(self.metrics.lags()))
    }

    /// First offset of each segment of a partition, ascending; the last one is the active one's. Empty: it is not open here.
    pub fn segment_starts(&self, incarnation: u64) -> Vec<u64> {
        let state = self.state.lock();
        let partition = state.partitions.get(&incarnation);
        partition.map_or_else(Vec::new, |open| open.reader().segment_starts())
    }

    /// The checks behind `/readyz`. Blocks for as long as the data directory's file system does not answer.
    pub fn checks(&self) -> Vec<Check> {
        self.metrics.checks.checks()
    }

    /// Counters and gauges as JSON. Blocks as [`Engine::checks`].
    pub fn statistics(&self) -> serde_json::Value {
        let values = metrics::collect(&self.metrics).into_iter();
        let named = values.map(|(name, value)| (name.to_owned(), value.into()));
        serde_json::Value::Object(named.collect())
    }
}
