//! Closing and deleting a log.
use crate::commit::group_committer::SyncRequest;
use crate::failpoint;
use crate::io::{disk, file_names};
use crate::segment::index;
use crate::{Error, IoOp, Log};
use std::sync::mpsc;

impl Log {
    /// Syncs, writes a clean checkpoint and closes; readers get [`crate::ReadError::Closed`]. Blocks.
    ///
    /// # Errors
    /// [`Error::Failed`] when the directory has failed before; [`Error::Io`]. The log is closed in any case, and the next open
    /// recovers it.
    pub fn close(mut self) -> Result<(), Error> {
        self.compacting.cancel();
        self.wait_idle();
        // Checks failures of this moment too: a sync after a failed one proves nothing.
        self.committer.check_usable()?;
        self.write_end()
            .inspect_err(|error| self.committer.files().fail_if_fatal(error))
    }

    fn write_end(&mut self) -> Result<(), Error> {
        let (end, file) = (self.active.end(), self.target()?);
        self.preallocation
            .finish(&file, end)
            .map_err(|source| Error::io(IoOp::Truncate, self.active.path(), source))?;
        file.sync()?;
        if let Some(epochs) = self.epochs.take_unsynced() {
            epochs.sync()?;
        }
        let log_end = self.shared.log_end();
        self.shared.raise_segment_synced_end(log_end);
        let identity = self.shared.identity;
        let summary = self.active.summary(self.chain, self.epochs.last());
        let index_path = self.active.path().with_extension("idx");
        let storage = self.committer.files().storage();
        disk::write(
            storage,
            &index_path,
            &index::to_bytes(identity, &summary, self.active.index()),
        )?;
        disk::replace(
            storage,
            &self.directory.join("producers"),
            &self.producers.to_bytes(identity, log_end),
        )?;
        let mut checkpoint = self.checkpoint.lock();
        failpoint::pass("checkpoint.before_clean");
        checkpoint.write(storage, self.shared.checkpoint(true))?;
        checkpoint.sync(storage)
    }

    /// Renames the directory to a deleted name and syncs the parent; [`crate::DeletedLogs`] unlinks the files.
    ///
    /// # Errors
    /// [`Error::Io`]; then the log is closed but not deleted.
    pub fn delete(self) -> Result<(), Error> {
        self.shared.close();
        self.compacting.cancel();
        self.wait_idle();
        let storage = self.committer.files().storage();
        let marked = file_names::deleted_name(&self.directory, storage.wall_clock_ns());
        let mark = || {
            disk::rename(storage, &self.directory, &marked)?;
            failpoint::pass("delete.renamed");
            self.directory
                .parent()
                .map_or(Ok(()), |parent| disk::sync_directory(storage, parent))
        };
        mark().inspect_err(|error| self.committer.files().fail_if_fatal(error))
    }

    /// Waits until both threads have served this log. The committer first, because its answers may submit background jobs.
    pub(crate) fn wait_idle(&self) {
        if self.committer.is_stepped() {
            while self.committer.step() {}
            return;
        }
        let (done, answered) = mpsc::channel();
        let last = done.clone();
        self.committer.sync_queue().submit(SyncRequest {
            file: None,
            also: None,
            range: None,
            directory: None,
            // The receiver waits below.
            answer: Box::new(move |_| {
                let _ = done.send(());
            }),
        });
        // An error means that no thread is left.
        let _ = answered.recv();
        self.background.submit(Box::new(move || {
            let _ = last.send(());
        }));
        let _ = answered.recv();
    }
}
