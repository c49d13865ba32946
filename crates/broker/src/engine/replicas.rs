//! Replicas whose log has to end earlier, or to begin later: closed, truncated or reset, and opened again.
use super::lifecycle::State;
use super::parts::Parts;
use super::{directory, error::open_code};
use crate::events::Level;
use crate::partition::replica::{LogChange, WantedLog};
use crate::partition::{EndReason, Partition};
use crate::view::{StreamView, View};
use bascule_log::{Error, GroupCommitter, Log};
use parking_lot::Mutex;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;

/// What changing logs needs of the engine, while that lives.
pub(super) struct LogChanger {
    data: PathBuf,
    parts: Arc<Parts>,
    committer: Weak<GroupCommitter>,
    admin: Weak<Mutex<()>>,
    state: Weak<Mutex<State>>,
}

impl LogChanger {
    /// For the engine of these parts; keeps none of them but `parts` alive.
    pub fn new(
        data: &Path,
        parts: &Arc<Parts>,
        committer: &Arc<GroupCommitter>,
        admin: &Arc<Mutex<()>>,
        state: &Arc<Mutex<State>>,
    ) -> Self {
        Self {
            data: data.to_owned(),
            parts: parts.clone(),
            committer: Arc::downgrade(committer),
            admin: Arc::downgrade(admin),
            state: Arc::downgrade(state),
        }
    }

    /// Changes the logs that replicas ask for, one after the other, until the engine is gone.
    pub async fn run(self) {
        let this = Arc::new(self);
        loop {
            let next = this.parts.partitions.replicas.next_log_change().await;
            let worker = this.clone();
            let done = tokio::task::spawn_blocking(move || worker.change(&next)).await;
            if matches!(done, Ok(None) | Err(_)) {
                return;
            }
        }
    }

    /// `None`: the engine is gone.
    fn change(&self, asked: &LogChange) -> Option<()> {
        let (admin, state) = (self.admin.upgrade()?, self.state.upgrade()?);
        let committer = self.committer.upgrade()?;
        let _one = admin.lock();
        let identity = asked.partition.identity();
        let incarnation = identity.incarnation;
        {
            let mut state = state.lock();
            let open = state.partitions.get(&incarnation);
            if !open.is_some_and(|open| open.is(&asked.partition)) {
                return Some(());
            }
            state.partitions.remove(&incarnation);
        }
        Handle::current().block_on(asked.partition.close(EndReason::Closed));
        let name = format!("{}/{}", identity.stream, identity.number);
        let (offset, epoch) = (asked.wanted.offset(), asked.leader_epoch);
        let fields =
            json!({"stream": identity.stream, "partition": identity.number, "offset": offset});
        match self.apply(asked, &committer) {
            Ok(bytes) => {
                let text = match asked.wanted {
                    WantedLog::Truncated { .. } => format!(
                        "partition {name}: {bytes} bytes from offset {offset} on were truncated, which the leader of epoch {epoch} does not have"
                    ),
                    WantedLog::Begun(_) => format!(
                        "partition {name}: its log begins again at offset {offset}, without {bytes} bytes of before: the leader of epoch {epoch} has removed what would come next"
                    ),
                };
                let events = &self.parts.events;
                events.log(Level::Warning, "replication", text, fields.clone());
            }
            // Opened again, it is compared again, and asks again.
            Err(error) => self.failed(&name, "changed", &error, &fields),
        }
        let path = self.path(incarnation);
        let (context, spec) = (&self.parts.partitions, asked.spec.clone());
        match Partition::open(context, spec, &path, &committer, true) {
            Ok((partition, _)) => {
                let mut state = state.lock();
                state.partitions.insert(incarnation, partition.clone());
                self.show(&partition);
            }
            Err(error) => self.failed(&name, "opened again", &error, &fields),
        }
        Some(())
    }

    /// Changes the closed log. Returns how many bytes it has lost.
    fn apply(&self, asked: &LogChange, committer: &Arc<GroupCommitter>) -> Result<u64, Error> {
        let incarnation = asked.spec.incarnation;
        let path = self.path(incarnation);
        let options = asked.spec.log_options(&self.parts.partitions.master_keys);
        let (log, _) = Log::open(&path, asked.spec.log_identity(), options, committer)?;
        let before = log.reader().bytes();
        let log = match &asked.wanted {
            WantedLog::Truncated { to, keeps } => {
                let kept = path.join(format!("lost-{}-{to}", asked.leader_epoch));
                let keep = keeps.then_some(kept.as_path());
                log.truncate(*to, asked.leader_epoch, keep)?.0
            }
            WantedLog::Begun(start) => log.reset_at(start)?,
        };
        let after = log.reader().bytes();
        log.close()?;
        Ok(before.saturating_sub(after))
    }

    fn path(&self, incarnation: u64) -> PathBuf {
        directory::partitions(&self.data).join(incarnation.to_string())
    }

    fn failed(&self, name: &str, what: &str, error: &Error, fields: &serde_json::Value) {
        let text = format!("partition {name} could not be {what}: {error}");
        let mut fields = fields.clone();
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("code".into(), open_code(error).as_str().into());
        }
        self.parts
            .events
            .log(Level::Error, "replication", text, fields);
    }

    /// Puts the partition that was opened again into the view. The state is locked, as for every change of the view.
    fn show(&self, partition: &Partition) {
        let identity = partition.identity();
        let mut view = View::clone(&self.parts.view.load_full());
        let streams = view.namespaces.get_mut(&identity.namespace);
        let Some(stream) = streams.and_then(|streams| streams.get_mut(&identity.stream)) else {
            return;
        };
        let mut changed = StreamView::clone(stream);
        for place in &mut changed.partitions {
            if place.incarnation == identity.incarnation {
                place.handle = Some(partition.clone());
            }
        }
        *stream = Arc::new(changed);
        self.parts.view.store(Arc::new(view));
    }
}
