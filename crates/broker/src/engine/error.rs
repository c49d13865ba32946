//! Failures of the engine.
use super::DirectoryError;
use crate::encryption::MastersError;
use crate::metadata::MetadataError;
use serde_json::{Value, json};
use std::io::ErrorKind;

/// A failure with a code of specs/errors.toml and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct EngineError {
    /// Code.
    pub code: &'static str,
    /// Sentence.
    pub text: String,
    /// Values of the sentence by name: an object.
    pub details: Value,
}

impl EngineError {
    pub(crate) fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            details: json!({}),
        }
    }

    pub(super) fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }
}
impl From<MastersError> for EngineError {
    fn from(error: MastersError) -> Self {
        let details = json!({"key": "encryption.keys", "id": error.id});
        Self::new("configuration_invalid", error.to_string()).with(details)
    }
}
impl From<DirectoryError> for EngineError {
    fn from(error: DirectoryError) -> Self {
        Self {
            code: error.code,
            text: error.text,
            details: error.details,
        }
    }
}
impl From<MetadataError> for EngineError {
    fn from(error: MetadataError) -> Self {
        let code = match &error {
            MetadataError::Damaged(_) | MetadataError::Log(bascule_log::Error::Foreign { .. }) => {
                "metadata_damaged"
            }
            MetadataError::Log(log) => open_code(log),
            MetadataError::Snapshot(error) => match error.kind() {
                ErrorKind::InvalidData => "metadata_damaged",
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "disk_full",
                _ => "storage_failed",
            },
        };
        Self::new(code, error.to_string())
    }
}

/// The code for a log that could not be opened.
pub(super) fn open_code(error: &bascule_log::Error) -> &'static str {
    match error {
        bascule_log::Error::Full { .. } => "disk_full",
        bascule_log::Error::Io { source, .. }
            if matches!(
                source.kind(),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded
            ) =>
        {
            "disk_full"
        }
        bascule_log::Error::Io { .. } | bascule_log::Error::Failed { .. } => "storage_failed",
        bascule_log::Error::NewerFormat { .. } | bascule_log::Error::NewerBatch { .. } => {
            "data_directory_newer"
        }
        bascule_log::Error::Absent { .. } => "partition_missing",
        bascule_log::Error::Foreign { .. } => "data_directory_foreign",
        _ => "damaged",
    }
}
