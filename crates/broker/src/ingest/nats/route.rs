//! One subscription and the partitions that it feeds.
use super::absent::Absent;
use super::feed::Feed;
use crate::nats::client::Subscription;
use crate::nats::connections::Role;
use arc_swap::ArcSwap;
use bascule_wire::subject::{SubjectFilter, has_wildcard};
use parking_lot::Mutex;
use std::sync::Arc;

/// A subject and a queue group (empty = none).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RouteKey {
    pub(super) subject: String,
    pub(super) group: String,
    /// Which creation of a stream it belongs to, with a group; 0 = it is shared.
    pub(super) stream: u64,
}

/// One subscription and the partitions that store its messages.
pub(super) struct Route {
    pub(super) key: RouteKey,
    pub(super) filter: SubjectFilter,
    pub(super) feeds: ArcSwap<Vec<Arc<Feed>>>,
    pub(super) absent: ArcSwap<Vec<Arc<Absent>>>,
    pub(super) task: Mutex<Task>,
    /// The server's error if it did not permit the subscription.
    pub(super) denied: Mutex<Option<String>>,
}

pub(super) enum Task {
    /// Not subscribed yet.
    None,
    Running {
        _subscription: Subscription,
    },
    /// Nobody listens any more; a subscription under way must not start.
    Ended,
}

impl Route {
    pub(super) fn new(key: RouteKey, filter: SubjectFilter) -> Self {
        Self {
            key,
            filter,
            feeds: ArcSwap::default(),
            absent: ArcSwap::default(),
            task: Mutex::new(Task::None),
            denied: Mutex::default(),
        }
    }

    pub(super) fn feeds(&self) -> arc_swap::Guard<Arc<Vec<Arc<Feed>>>> {
        self.feeds.load()
    }

    /// Partitions that would be fed if they were not paused.
    pub(super) fn absent(&self) -> arc_swap::Guard<Arc<Vec<Arc<Absent>>>> {
        self.absent.load()
    }

    /// The one subject of all messages; `None` with wildcards.
    pub(super) fn concrete_subject(&self) -> Option<&str> {
        (!has_wildcard(&self.key.subject)).then_some(self.key.subject.as_str())
    }

    /// Remembers whether the server permits the subscription.
    pub(super) fn set_denied(&self, text: Option<String>) {
        *self.denied.lock() = text;
    }

    /// The subject subscribed to.
    pub(super) fn subject(&self) -> &str {
        &self.key.subject
    }

    /// Names of the partitions that it feeds.
    pub(super) fn names(&self) -> Vec<String> {
        self.feeds.load().iter().map(|feed| feed.name()).collect()
    }

    pub(super) fn is_used(&self) -> bool {
        !self.feeds.load().is_empty() || !self.absent.load().is_empty()
    }

    pub(super) fn listens(&self, incarnation: u64) -> bool {
        let feeds = self.feeds.load();
        feeds.iter().any(|feed| feed.incarnation() == incarnation)
    }

    pub(super) fn role(&self) -> Role {
        if self.key.group.is_empty() {
            Role::Ingest
        } else {
            Role::Streams
        }
    }
}
