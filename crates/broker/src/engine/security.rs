//! Connections and permissions: both can be replaced while the broker serves.
use super::{Engine, EngineError};
use crate::access::{AccessTable, Action, TableError};
use crate::tls::{Loaded, TlsError, TlsSettings};
use bascule_wire::ErrorCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// A client, an action and a resource.
pub type Question = (String, String, String);

impl Engine {
    /// Reads certificates and key, and serves every connection from now on with them. Those that are open stay as they are.
    ///
    /// # Errors
    /// `configuration_invalid`, with the file, what is wrong with it and the remedy; what was in use stays in use.
    pub fn load_tls(&self, settings: &TlsSettings) -> Result<Loaded, EngineError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = now.map_or(0, |now| now.as_secs());
        Ok(self.parts.tls.load(settings, now_s)?)
    }

    /// Decides by this table from now on; empty = everything is allowed.
    ///
    /// # Errors
    /// `invalid_argument`; what was in use stays in use.
    pub fn publish_access(&self, table: &[u8]) -> Result<(), EngineError> {
        let table = match table {
            [] => None,
            json => Some(AccessTable::read(json)?),
        };
        self.parts.access.set_table(table);
        Ok(())
    }
}

/// The decision of a table, without a broker.
///
/// # Errors
/// `invalid_argument`: the table, or an action that does not exist.
pub fn access_allows(table: &[u8], questions: &[Question]) -> Result<Vec<bool>, EngineError> {
    let table = AccessTable::read(table)?;
    let answer = |(client, action, resource): &Question| {
        let known = Action::of(action);
        let known = known.ok_or_else(|| {
            EngineError::new(ErrorCode::InvalidArgument, format!("no action {action:?}"))
        })?;
        Ok(table.allows(client, known, resource))
    };
    questions.iter().map(answer).collect()
}

impl From<TlsError> for EngineError {
    fn from(error: TlsError) -> Self {
        let details = serde_json::json!({"file": error.file});
        Self::new(ErrorCode::ConfigurationInvalid, error.text).with(details)
    }
}

impl From<TableError> for EngineError {
    fn from(error: TableError) -> Self {
        Self::new(ErrorCode::InvalidArgument, error.to_string())
    }
}
