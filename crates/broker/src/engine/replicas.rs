//! Replicas whose log has to end earlier: closed, truncated, and opened again.
use super::lifecycle::State;
use super::parts::Parts;
use super::{directory, error::open_code};
use crate::events::Level;
use crate::partition::replica::Truncation;
use crate::partition::{EndReason, Partition};
use crate::view::{StreamView, View};
use bascule_log::{Error, GroupCommitter, Log};
use parking_lot::Mutex;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;

/// What truncating needs of the engine, while that lives.
pub(super) struct Truncator {
    data: PathBuf,
    parts: Arc<Parts>,
    committer: Weak<GroupCommitter>,
    admin: Weak<Mutex<()>>,
    state: Weak<Mutex<State>>,
}

impl Truncator {
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

    /// Truncates what replicas ask for, one after the other, until the engine is gone.
    pub async fn run(self) {
        let this = Arc::new(self);
        loop {
            let next = this.parts.partitions.replicas.next_truncation().await;
            let worker = this.clone();
            let done = tokio::task::spawn_blocking(move || worker.truncate(&next)).await;
            if matches!(done, Ok(None) | Err(_)) {
                return;
            }
        }
    }

    /// `None`: the engine is gone.
    fn truncate(&self, asked: &Truncation) -> Option<()> {
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
        let fields =
            json!({"stream": identity.stream, "partition": identity.number, "offset": asked.to});
        match self.cut(asked, &committer) {
            Ok(cut) => {
                let text = format!(
                    "partition {name}: {cut} bytes from offset {} on were truncated, which the leader of epoch {} does not have",
                    asked.to, asked.leader_epoch
                );
                let events = &self.parts.events;
                events.log(Level::Warning, "replication", text, fields.clone());
            }
            // Opened again, it is compared again, and asks again.
            Err(error) => self.failed(&name, "truncated", &error, &fields),
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

    /// Ends the closed log. Returns how many bytes it has lost.
    fn cut(&self, asked: &Truncation, committer: &Arc<GroupCommitter>) -> Result<u64, Error> {
        let incarnation = asked.spec.incarnation;
        let path = self.path(incarnation);
        let options = asked.spec.log_options(&self.parts.partitions.master_keys);
        let (log, _) = Log::open(&path, asked.spec.log_identity(), options, committer)?;
        let before = log.reader().bytes();
        let kept = path.join(format!("lost-{}-{}", asked.leader_epoch, asked.to));
        let keep = asked.keeps.then_some(kept.as_path());
        let (log, _) = log.truncate(asked.to, asked.leader_epoch, keep)?;
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
