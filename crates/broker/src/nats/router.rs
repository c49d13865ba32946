//! Which partitions listen on which subject: one NATS subscription per subject feeds all of them. A stream with a queue
//! group has a subscription of its own, or two streams of one group on this broker would each get what they should share.
//!
//! Overlapping subjects are separate subscriptions, and NATS delivers a message on each; two streams on the *same* subject
//! share one. Locks: `subscribing` (held across awaits), then `routes`, then a route's `task`.
use super::connection::{Role, SYNC_LIMIT};
use super::feed::Feed;
use super::ingest;
use super::origin::{is_same_stream, stream_of};
use super::session::Session;
use crate::partition::Partition;
use arc_swap::ArcSwap;
use async_nats::Client;
use bascule_wire::subject::{SubjectFilter, has_wildcard};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::AbortHandle;

/// How long a subscription may wait for room in the outgoing queue of a connection that has just been lost.
const SUBSCRIBE_LIMIT: Duration = Duration::from_secs(1);

/// A subject and a queue group (empty = none).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RouteKey {
    subject: String,
    group: String,
    /// Which creation of a stream it belongs to, with a group; 0 = it is shared.
    stream: u64,
}

/// One subscription and who is fed by it.
pub(super) struct Route {
    key: RouteKey,
    filter: SubjectFilter,
    feeds: ArcSwap<Vec<Arc<Feed>>>,
    task: Mutex<Task>,
}

enum Task {
    /// Not subscribed yet.
    None,
    Running(AbortHandle),
    /// Nobody listens any more; a subscription under way must not start.
    Ended,
}

impl Route {
    pub(super) fn feeds(&self) -> arc_swap::Guard<Arc<Vec<Arc<Feed>>>> {
        self.feeds.load()
    }

    fn role(&self) -> Role {
        if self.key.group.is_empty() {
            Role::Ingest
        } else {
            Role::Streams
        }
    }

    fn is_wanting(&self) -> bool {
        matches!(*self.task.lock(), Task::None)
    }
}

/// All routes of the broker; they outlive sessions.
#[derive(Default)]
pub(super) struct Router {
    routes: Mutex<Routes>,
    version: AtomicU64,
    subscribing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Routes {
    by_key: HashMap<RouteKey, Arc<Route>>,
    by_incarnation: HashMap<u64, RouteKey>,
    /// Those without a group whose subject has wildcards.
    wildcards: Vec<Arc<Route>>,
}

impl Router {
    /// Changes whenever a partition starts or stops listening.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// See [`super::NatsLink::lead_all`].
    pub(super) async fn lead(&self, session: Option<&Arc<Session>>, partitions: &[Partition]) {
        let routes: Vec<_> = partitions
            .iter()
            .filter_map(|partition| self.route(session, partition))
            .collect();
        let Some(session) = session else { return };
        for role in [Role::Ingest, Role::Streams] {
            let routes = routes.iter().filter(|route| route.role() == role);
            self.subscribe(session, role, &routes.cloned().collect::<Vec<_>>())
                .await;
        }
    }

    /// The route that a partition listens by from now on; `None` when it has no subject, or none to subscribe to.
    fn route(&self, session: Option<&Arc<Session>>, partition: &Partition) -> Option<Arc<Route>> {
        let identity = partition.identity();
        if identity.subject.is_empty() {
            return None;
        }
        if let Ok(filter) = SubjectFilter::parse(&identity.subject) {
            return Some(self.add(partition, filter));
        }
        if let Some(session) = session {
            let text = format!(
                "{}/{} cannot listen: {:?} is no NATS subscription",
                identity.stream, identity.number, identity.subject
            );
            session.reporter.error(Role::Ingest.name(), text);
        }
        None
    }

    /// See [`super::NatsLink::unlead`].
    pub(super) fn unlead(&self, incarnation: u64) {
        let mut routes = self.routes.lock();
        let Some(key) = routes.by_incarnation.remove(&incarnation) else {
            return;
        };
        let Some(route) = routes.by_key.get(&key).cloned() else {
            return;
        };
        let left: Vec<_> = route
            .feeds
            .load()
            .iter()
            .filter(|feed| feed.incarnation() != incarnation)
            .cloned()
            .collect();
        if left.is_empty() {
            routes.by_key.remove(&key);
            routes.wildcards.retain(|other| other.key != key);
            // The subscription is dropped with its task, and that unsubscribes.
            if let Task::Running(task) = std::mem::replace(&mut *route.task.lock(), Task::Ended) {
                task.abort();
            }
        }
        route.feeds.store(Arc::new(left));
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Subscribes to everything of one connection that is not subscribed yet.
    pub(super) async fn subscribe_all(&self, session: &Arc<Session>, role: Role) {
        let wanted: Vec<_> = self
            .routes
            .lock()
            .by_key
            .values()
            .filter(|route| route.role() == role && route.is_wanting())
            .cloned()
            .collect();
        self.subscribe(session, role, &wanted).await;
    }

    /// Ends all subscriptions; the next session starts them again.
    pub(super) fn forget_subscriptions(&self) {
        for route in self.routes.lock().by_key.values() {
            if let Task::Running(task) = std::mem::replace(&mut *route.task.lock(), Task::None) {
                task.abort();
            }
        }
    }

    /// Forgets all partitions.
    pub(super) fn clear(&self) {
        let incarnations: Vec<_> = self.routes.lock().by_incarnation.keys().copied().collect();
        for incarnation in incarnations {
            self.unlead(incarnation);
        }
    }

    /// Who is fed by the *ingest* connection from what is published on `subject`, without the stream of the partition `except`. The copies
    /// that this broker publishes there do not come back to it (`no_echo`): these are the ones to hand them to.
    pub(super) fn listeners(&self, subject: &str, except: u64) -> Vec<Arc<Feed>> {
        let routes = self.routes.lock();
        let key = RouteKey {
            subject: subject.to_owned(),
            group: String::new(),
            stream: 0,
        };
        let exact = routes.by_key.get(&key).into_iter();
        let matching = exact.chain(
            routes
                .wildcards
                .iter()
                .filter(|route| route.filter.matches(subject)),
        );
        matching
            .flat_map(|route| route.feeds.load().iter().cloned().collect::<Vec<_>>())
            .filter(|feed| !is_same_stream(feed.incarnation(), except))
            .collect()
    }

    fn add(&self, partition: &Partition, filter: SubjectFilter) -> Arc<Route> {
        let identity = partition.identity();
        let key = RouteKey {
            subject: identity.subject.clone(),
            group: identity.queue_group.clone(),
            stream: match identity.queue_group.as_str() {
                "" => 0,
                _ => stream_of(identity.incarnation),
            },
        };
        let mut routes = self.routes.lock();
        let route = routes.by_key.get(&key).cloned().unwrap_or_else(|| {
            let route = Arc::new(Route {
                key: key.clone(),
                filter,
                feeds: ArcSwap::default(),
                task: Mutex::new(Task::None),
            });
            routes.by_key.insert(key.clone(), route.clone());
            if key.group.is_empty() && has_wildcard(&key.subject) {
                routes.wildcards.push(route.clone());
            }
            route
        });
        let listens = |feed: &Arc<Feed>| feed.incarnation() == identity.incarnation;
        let mut feeds = Vec::clone(&route.feeds.load());
        if !feeds.iter().any(|feed| listens(feed) && feed.is_open()) {
            feeds.retain(|feed| !listens(feed));
            feeds.push(Feed::start(partition.clone()));
            route.feeds.store(Arc::new(feeds));
        }
        routes.by_incarnation.insert(identity.incarnation, key);
        self.version.fetch_add(1, Ordering::Release);
        route
    }

    /// Subscribes where needed and waits for the server to have done it.
    async fn subscribe(&self, session: &Arc<Session>, role: Role, routes: &[Arc<Route>]) {
        if routes.is_empty() {
            return;
        }
        let _one_at_a_time = self.subscribing.lock().await;
        // While disconnected nothing is lost: the session calls again after the next connect.
        let Some(client) = session.connection(role).client() else {
            return;
        };
        for route in routes.iter().filter(|route| route.is_wanting()) {
            if let Err(error) = start(session, client, route).await {
                session.reporter.error(
                    role.name(),
                    format!("cannot subscribe to {}: {error}", route.key.subject),
                );
            }
        }
        if !session.connection(role).sync(session.sync_subject()).await {
            session.reporter.error(
                role.name(),
                format!("NATS did not confirm a subscription within {SYNC_LIMIT:?}"),
            );
        }
    }
}

async fn start(session: &Arc<Session>, client: &Client, route: &Arc<Route>) -> Result<(), String> {
    let RouteKey { subject, group, .. } = route.key.clone();
    let subscribing = async {
        if group.is_empty() {
            client.subscribe(subject).await
        } else {
            client.queue_subscribe(subject, group).await
        }
    };
    let subscribed = tokio::time::timeout(SUBSCRIBE_LIMIT, subscribing)
        .await
        .map_err(|_| "the connection does not take it".to_owned())?;
    let subscriber = subscribed.map_err(|error| error.to_string())?;
    let mut task = route.task.lock();
    if matches!(*task, Task::None) {
        let drain = ingest::drain(session.clone(), route.clone(), subscriber);
        *task = Task::Running(session.connection(route.role()).spawn(drain));
    }
    Ok(())
}
