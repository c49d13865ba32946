//! Observability of the engine: the HTTP listener, checks and statistics.
use super::{Engine, EngineError};
use crate::checks::Check;
use crate::http::{self, HttpSettings};
use crate::metrics;
use bascule_wire::ErrorCode;
use std::collections::HashMap;

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
