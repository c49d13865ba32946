//! The file `<data>/node`: what this broker remembers of its runs.
use crate::engine::error::EngineError;
use crate::slots::{SlotError, SlotFile};
use bascule_record::crypt::{Entropy, SystemEntropy};
use bascule_wire::ErrorCode;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = *b"BSND";
/// Nonces that are kept.
const RUNS: usize = 8;

/// What the file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeState {
    /// Of the last registration; 0 = none.
    pub boot_epoch: u64,
    /// Of the last runs, the newest last.
    pub nonces: Vec<u64>,
}

/// The file, open.
#[derive(Debug)]
pub(super) struct NodeFile {
    slots: SlotFile<NodeState>,
    path: PathBuf,
}

impl NodeFile {
    /// Opens or creates the file, and begins a run: its nonce is synced. Blocks.
    ///
    /// # Errors
    /// `data_directory_foreign`: the file is a copy; `data_directory_unusable`: it is damaged; `storage_failed`.
    pub fn begin(data: &Path) -> Result<Self, EngineError> {
        let path = data.join("node");
        let failed = |error| failed(&path, &error);
        let slots = match SlotFile::<NodeState>::open(&path, MAGIC) {
            Err(SlotError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                SlotFile::create(&path, MAGIC, NodeState::default())
            }
            opened => opened,
        };
        let slots = slots.map_err(failed)?;
        let mut node = Self { slots, path };
        node.renew()?;
        Ok(node)
    }

    /// Begins another run: its nonce is synced when this returns. Blocks.
    ///
    /// # Errors
    /// `storage_failed`.
    pub fn renew(&mut self) -> Result<(), EngineError> {
        let mut state = self.state().clone();
        state.nonces.push(nonce()?);
        state
            .nonces
            .drain(..state.nonces.len().saturating_sub(RUNS));
        let written = self.slots.write(state);
        written.map_err(|error| failed(&self.path, &error))
    }

    /// What is stored.
    pub fn state(&self) -> &NodeState {
        self.slots.state()
    }

    /// Of this run.
    pub fn nonce(&self) -> u64 {
        self.state().nonces.last().copied().unwrap_or_default()
    }

    /// Stores the boot epoch of a registration; synced when this returns. Blocks.
    ///
    /// # Errors
    /// `storage_failed`.
    pub fn store(&mut self, boot_epoch: u64) -> Result<(), EngineError> {
        let state = NodeState {
            boot_epoch,
            ..self.state().clone()
        };
        let written = self.slots.write(state);
        written.map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, error: &SlotError) -> EngineError {
    let path = path.display();
    let (code, remedy) = match error {
        SlotError::Copied { .. } => (
            ErrorCode::DataDirectoryForeign,
            "; the broker that it was copied from may be running: start that one, or give this one an empty directory and an id of its own",
        ),
        SlotError::Damaged => (
            ErrorCode::DataDirectoryUnusable,
            "; give this broker an empty directory and an id of its own",
        ),
        _ => (ErrorCode::StorageFailed, ""),
    };
    EngineError::new(code, format!("{path}: {error}{remedy}"))
}

fn nonce() -> Result<u64, EngineError> {
    let mut bytes = [0; 8];
    let drawn = SystemEntropy.fill(&mut bytes);
    drawn.map_err(|error| EngineError::new(ErrorCode::Internal, error.to_string()))?;
    Ok((u64::from_le_bytes(bytes) >> 1).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_run_has_a_nonce_of_its_own_and_the_boot_epoch_of_the_last_registration() {
        let data = tempfile::tempdir().unwrap();
        let mut nonces = Vec::new();
        for run in 0..10 {
            let mut node = NodeFile::begin(data.path()).unwrap();
            assert_eq!(node.state().boot_epoch, run);
            assert_eq!(node.state().nonces.len(), RUNS.min(run as usize + 1));
            nonces.push(node.nonce());
            node.store(run + 1).unwrap();
        }
        nonces.dedup();
        assert_eq!(nonces.len(), 10);
        let node = NodeFile::begin(data.path()).unwrap();
        assert_eq!(node.state().nonces[..7], nonces[3..]);
    }

    #[test]
    fn a_copy_and_a_damaged_file_are_refused_by_name() {
        let data = tempfile::tempdir().unwrap();
        drop(NodeFile::begin(data.path()).unwrap());
        let copy = tempfile::tempdir().unwrap();
        fs::copy(data.path().join("node"), copy.path().join("node")).unwrap();
        let refused = NodeFile::begin(copy.path()).unwrap_err();
        assert_eq!(refused.code, ErrorCode::DataDirectoryForeign, "{refused}");
        fs::write(data.path().join("node"), [7; 8192]).unwrap();
        let refused = NodeFile::begin(data.path()).unwrap_err();
        assert_eq!(refused.code, ErrorCode::DataDirectoryUnusable, "{refused}");
    }
}
