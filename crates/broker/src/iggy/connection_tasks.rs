//! The connections of a listener, and which of them give way.
//!
//! A connection that has not logged in is a task and little else: at most `limits.handshakes` of them are open, and a further
//! one closes the oldest, so that clients which only connect keep nobody out.
use super::context::IggyContext;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::{AbortHandle, JoinSet};

/// A connection that had not logged in when it was last seen.
#[derive(Debug)]
struct Stranger {
    task: AbortHandle,
    is_known: Arc<AtomicBool>,
}

/// The tasks of a listener's connections; aborted when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionTasks {
    context: Arc<IggyContext>,
    tasks: JoinSet<()>,
    /// Newest last.
    strangers: VecDeque<Stranger>,
}

impl ConnectionTasks {
    pub(super) fn new(context: Arc<IggyContext>) -> Self {
        Self {
            context,
            tasks: JoinSet::new(),
            strangers: VecDeque::new(),
        }
    }

    /// Runs a connection, which sets `is_known` when its client has logged in.
    pub(super) fn start(
        &mut self,
        is_known: Arc<AtomicBool>,
        connection: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.tasks.spawn(connection);
        self.strangers.push_back(Stranger { task, is_known });
        self.keep_newest();
    }

    /// Waits until one has ended, which is forgotten; `None` = there is none.
    pub(super) async fn ended(&mut self) -> Option<()> {
        self.tasks.join_next().await.map(|_| ())
    }

    fn keep_newest(&mut self) {
        let most = self.context.limits.handshakes;
        if self.strangers.len() <= most {
            return;
        }
        self.strangers
            .retain(|one| !one.is_known.load(Ordering::Acquire) && !one.task.is_finished());
        if self.strangers.len() > most
            && let Some(oldest) = self.strangers.pop_front()
        {
            oldest.task.abort();
            self.context.statistics.handshakes_failed.add(1);
        }
    }
}
