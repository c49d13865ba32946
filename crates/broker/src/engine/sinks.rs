//! The sink table, and what is staged (`crate::stage`).
use super::{Engine, EngineError};
use crate::partition::Partition;
use crate::resume::resume;
use crate::stage::{ConfirmRequest, Confirmation, SinkChanges, StagedAttempt};
use bascule_wire::ErrorCode;
use std::time::Duration;

/// How long a partition that is paused may take to be resumed for a confirmation.
const RESUMING: Duration = Duration::from_secs(5);

impl Engine {
    /// Applies changes to the sink table. Never waits for a disk.
    ///
    /// # Errors
    /// `invalid_argument` when the version does not ascend; `closed`.
    pub fn set_sinks(&self, version: u64, changes: SinkChanges) -> Result<(), EngineError> {
        self.runtime()?;
        let changed = self.parts.partitions.stage.set_sinks(version, changes);
        changed.map_err(|stale| EngineError::new(ErrorCode::InvalidArgument, stale.to_string()))
    }

    /// Checks what is claimed to be staged here; partitions that are paused are resumed first. Blocks.
    ///
    /// # Errors
    /// `closed`.
    pub fn confirm_stage(&self, request: &ConfirmRequest) -> Result<Confirmation, EngineError> {
        let runtime = self.runtime()?;
        let from_offset = |incarnation| {
            if self.partition(incarnation).is_none() {
                runtime.block_on(self.wake(incarnation))?;
            }
            let partition = self.partition(incarnation);
            partition
                .filter(Partition::is_leading)
                .map(|partition| partition.link_floor())
                .ok_or_else(|| "the partition is not open on this broker".to_owned())
        };
        Ok(self.parts.partitions.stage.confirm(request, from_offset))
    }

    /// What is staged here, by attempt.
    pub fn staged(&self) -> Vec<StagedAttempt> {
        self.parts.partitions.stage.staged()
    }

    /// Resumes a partition if it is paused.
    async fn wake(&self, incarnation: u64) -> Result<(), String> {
        let view = self.parts.view.load_full();
        let paused = view.streams().find_map(|stream| {
            let mut partitions = stream.partitions.iter();
            let found = partitions.find(|partition| partition.incarnation == incarnation)?;
            found.paused.then_some((stream, found.number))
        });
        let Some((stream, number)) = paused else {
            return Ok(());
        };
        let names = (stream.namespace.as_str(), stream.name.as_str());
        let resumed = resume(&self.parts.events, names, number as i32, Some(RESUMING)).await;
        resumed.map_err(|refused| {
            format!("the partition is paused, and stays so: {}", refused.message)
        })
    }
}
