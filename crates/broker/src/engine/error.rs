//! Failures of the engine.
use super::directory::DirectoryError;
use crate::consensus::MetadataError;
use crate::encryption::MasterKeyFileError;
use bascule_wire::ErrorCode;
use serde_json::{Value, json};
use std::io::ErrorKind;

/// A failure with a code of specs/errors.toml and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct EngineError {
    /// Code.
    pub code: ErrorCode,
    /// Sentence.
    pub text: String,
    /// Values of the sentence by name: an object.
    pub details: Value,
}

impl EngineError {
    pub(crate) fn new(code: ErrorCode, text: impl Into<String>) -> Self {
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
impl From<MasterKeyFileError> for EngineError {
    fn from(error: MasterKeyFileError) -> Self {
        let details = json!({"key": "encryption.keys", "id": error.id});
        Self::new(ErrorCode::ConfigurationInvalid, error.to_string()).with(details)
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
                ErrorCode::MetadataDamaged
            }
            MetadataError::Log(log) => open_code(log),
            MetadataError::Voter { .. } => ErrorCode::DataDirectoryForeign,
            MetadataError::Snapshot(error) => match error.kind() {
                ErrorKind::InvalidData => ErrorCode::MetadataDamaged,
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ErrorCode::DiskFull,
                _ => ErrorCode::StorageFailed,
            },
        };
        Self::new(code, error.to_string())
    }
}

/// The code for a log that could not be opened.
pub(super) fn open_code(error: &bascule_log::Error) -> ErrorCode {
    match error {
        bascule_log::Error::Full { .. } => ErrorCode::DiskFull,
        bascule_log::Error::Io { source, .. }
            if matches!(
                source.kind(),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded
            ) =>
        {
            ErrorCode::DiskFull
        }
        bascule_log::Error::Io { .. } | bascule_log::Error::Failed { .. } => {
            ErrorCode::StorageFailed
        }
        bascule_log::Error::NewerFormat { .. } | bascule_log::Error::NewerBatch { .. } => {
            ErrorCode::DataDirectoryNewer
        }
        bascule_log::Error::Absent { .. } => ErrorCode::PartitionMissing,
        bascule_log::Error::Foreign { .. } | bascule_log::Error::Stray { .. } => {
            ErrorCode::DataDirectoryForeign
        }
        bascule_log::Error::OlderFormat { .. } => ErrorCode::DataDirectoryUnusable,
        _ => ErrorCode::Damaged,
    }
}
