//! Which partitions listen on which subject: one NATS subscription per subject feeds all of them. A stream with a queue
//! group has a subscription of its own, or two streams of one group on this broker would each get what they should share.
//!
//! Overlapping subjects are separate subscriptions, and NATS delivers a message on each; two streams on the *same* subject
//! share one. Locks: `routes`, then a route's `task`.
use super::absent::{Absent, PausedPartition};
use super::context::IngestContext;
use super::feed::Feed;
use super::inbox::RouteInbox;
use super::losses::Losses;
use super::route::{Route, RouteKey, Task};
use crate::nats::connections::{Role, SYNC_LIMIT};
use crate::partition::Partition;
use crate::republish::marks::origin::{is_same_stream, stream_of};
use bascule_wire::subject::{SubjectFilter, has_wildcard};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// All routes of the broker; they outlive sessions.
#[derive(Default)]
pub(crate) struct Router {
    routes: Mutex<Routes>,
    version: AtomicU64,
}

#[derive(Default)]
struct Routes {
    by_key: HashMap<RouteKey, Arc<Route>>,
    by_incarnation: HashMap<u64, RouteKey>,
    /// Those without a group whose subject has wildcards.
    wildcards: Vec<Arc<Route>>,
    /// Of every partition that ever listened and was not deleted.
    losses: HashMap<u64, Arc<Losses>>,
}

impl Routes {
    fn route(&mut self, key: &RouteKey, filter: SubjectFilter) -> Arc<Route> {
        if let Some(route) = self.by_key.get(key) {
            return route.clone();
        }
        let route = Arc::new(Route::new(key.clone(), filter));
        self.by_key.insert(key.clone(), route.clone());
        if key.group.is_empty() && has_wildcard(&key.subject) {
            self.wildcards.push(route.clone());
        }
        route
    }

    /// Takes a partition off its route, whether it is fed or paused; ends a route that nobody needs.
    fn leave(&mut self, incarnation: u64) {
        let Some(key) = self.by_incarnation.remove(&incarnation) else {
            return;
        };
        let Some(route) = self.by_key.get(&key).cloned() else {
            return;
        };
        let feeds = route.feeds.load();
        let feeds = feeds
            .iter()
            .filter(|feed| feed.incarnation() != incarnation);
        route.feeds.store(Arc::new(feeds.cloned().collect()));
        let absent = route.absent.load();
        let absent = absent
            .iter()
            .filter(|absent| absent.incarnation != incarnation);
        route.absent.store(Arc::new(absent.cloned().collect()));
        if !route.is_used() {
            self.by_key.remove(&key);
            self.wildcards.retain(|other| other.key != key);
            // Dropping the subscription unsubscribes.
            *route.task.lock() = Task::Ended;
        }
    }
}

impl Router {
    /// Changes whenever a partition starts or stops listening.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// See [`crate::nats::NatsLink::lead_all`].
    pub(crate) async fn lead(
        &self,
        context: Option<&Arc<IngestContext>>,
        partitions: &[Partition],
    ) {
        let routes: Vec<_> = partitions
            .iter()
            .filter_map(|partition| self.route(context, partition))
            .collect();
        let Some(context) = context else { return };
        for role in [Role::Ingest, Role::Streams] {
            let routes = routes.iter().filter(|route| route.role() == role);
            self.subscribe(context, role, &routes.cloned().collect::<Vec<_>>())
                .await;
        }
    }

    /// The route that a partition listens by from now on; `None` when it has no subject, or none to subscribe to.
    fn route(
        &self,
        context: Option<&Arc<IngestContext>>,
        partition: &Partition,
    ) -> Option<Arc<Route>> {
        let identity = partition.identity();
        if identity.subject.is_empty() {
            return None;
        }
        if let Ok(filter) = SubjectFilter::parse(&identity.subject) {
            return Some(self.add(partition, filter));
        }
        if let Some(context) = context {
            let text = format!(
                "{}/{} cannot listen: {:?} is not a valid NATS subscription",
                identity.stream, identity.number, identity.subject
            );
            context.reporter.error(Role::Ingest.name(), text);
        }
        None
    }

    /// See [`crate::nats::NatsLink::stop_feeding`].
    pub(crate) fn stop_feeding(&self, incarnation: u64) {
        self.routes.lock().leave(incarnation);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// See [`crate::nats::NatsLink::pause`].
    pub(crate) fn pause(
        &self,
        context: Option<&Arc<IngestContext>>,
        place: PausedPartition,
        is_led_here: bool,
    ) {
        let filter = SubjectFilter::parse(&place.subject);
        let mut routes = self.routes.lock();
        let key = routes.by_incarnation.get(&place.incarnation);
        let is_listening = key
            .and_then(|key| routes.by_key.get(key))
            .is_some_and(|route| route.listens(place.incarnation));
        if is_listening && !is_led_here {
            // It was resumed meanwhile.
            return;
        }
        routes.leave(place.incarnation);
        self.version.fetch_add(1, Ordering::Release);
        let (Ok(filter), true) = (filter, place.counts) else {
            return;
        };
        let key = RouteKey {
            subject: place.subject.clone(),
            group: String::new(),
            stream: 0,
        };
        let losses = routes.losses.entry(place.incarnation).or_default().clone();
        let route = routes.route(&key, filter);
        routes.by_incarnation.insert(place.incarnation, key);
        let mut absent = Vec::clone(&route.absent.load());
        absent.push(Arc::new(Absent::new(place, losses)));
        route.absent.store(Arc::new(absent));
        drop(routes);
        if let Some(context) = context {
            start(context, &route);
        }
    }

    /// See [`crate::nats::NatsLink::forget`].
    pub(crate) fn forget(&self, incarnation: u64) {
        let mut routes = self.routes.lock();
        routes.leave(incarnation);
        routes.losses.remove(&incarnation);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// How a partition is subscribed, `none`, `waiting`, `subscribed` or `denied`, with what the server said.
    pub(crate) fn subscription(&self, incarnation: u64, is_up: bool) -> (&'static str, String) {
        let routes = self.routes.lock();
        let key = routes.by_incarnation.get(&incarnation);
        let Some(route) = key.and_then(|key| routes.by_key.get(key)) else {
            return ("none", String::new());
        };
        match &*route.denied.lock() {
            _ if !is_up => ("waiting", String::new()),
            Some(text) => ("denied", text.clone()),
            None => ("subscribed", String::new()),
        }
    }

    /// The connection that a partition listens by.
    pub(crate) fn role(&self, incarnation: u64) -> Option<Role> {
        let routes = self.routes.lock();
        let key = routes.by_incarnation.get(&incarnation)?;
        routes.by_key.get(key).map(|route| route.role())
    }

    /// Messages for a partition that are not stored, by the reason.
    pub(crate) fn losses(&self, incarnation: u64) -> Option<Arc<Losses>> {
        self.routes.lock().losses.get(&incarnation).cloned()
    }

    /// Subscribes to everything, for a context that begins.
    pub(crate) fn subscribe_all(&self, context: &Arc<IngestContext>) {
        let routes: Vec<_> = self.routes.lock().by_key.values().cloned().collect();
        for route in routes {
            start(context, &route);
        }
    }

    /// Ends all subscriptions; the next context starts them again.
    pub(crate) fn forget_subscriptions(&self) {
        for route in self.routes.lock().by_key.values() {
            *route.task.lock() = Task::None;
            route.set_denied(None);
        }
    }

    /// Forgets all partitions.
    pub(crate) fn clear(&self) {
        let incarnations: Vec<_> = self.routes.lock().by_incarnation.keys().copied().collect();
        for incarnation in incarnations {
            self.forget(incarnation);
        }
    }

    /// The partitions that store messages published on `subject`, without those of the stream of the partition `except`. Copies
    /// that this broker publishes there do not come back to it (`no_echo`), so it passes them to these partitions itself.
    pub(crate) fn listeners(&self, subject: &str, except: u64) -> Vec<Arc<Feed>> {
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
        let incarnation = identity.incarnation;
        let key = RouteKey {
            subject: identity.subject.clone(),
            group: identity.queue_group.clone(),
            stream: match identity.queue_group.as_str() {
                "" => 0,
                _ => stream_of(incarnation),
            },
        };
        let mut routes = self.routes.lock();
        let losses = routes.losses.entry(incarnation).or_default().clone();
        let route = routes.route(&key, filter);
        let absent = route.absent.load();
        let absent = absent
            .iter()
            .filter(|absent| absent.incarnation != incarnation);
        route.absent.store(Arc::new(absent.cloned().collect()));
        let listens = |feed: &Arc<Feed>| feed.incarnation() == incarnation;
        let mut feeds = Vec::clone(&route.feeds.load());
        if !feeds.iter().any(|feed| listens(feed) && feed.is_open()) {
            feeds.retain(|feed| !listens(feed));
            feeds.push(Feed::start(partition.clone(), losses));
            route.feeds.store(Arc::new(feeds));
        }
        routes.by_incarnation.insert(incarnation, key);
        self.version.fetch_add(1, Ordering::Release);
        route
    }

    /// Subscribes where needed and waits for the server to have done it.
    async fn subscribe(&self, context: &Arc<IngestContext>, role: Role, routes: &[Arc<Route>]) {
        if routes.is_empty() {
            return;
        }
        for route in routes {
            start(context, route);
        }
        // While disconnected nothing is lost: the next connection begins with all subscriptions.
        let Some(client) = context.connections.client(role) else {
            return;
        };
        if !client.round_trip(SYNC_LIMIT).await && client.is_connected() {
            context.reporter.error(
                role.name(),
                format!("NATS did not confirm a subscription within {SYNC_LIMIT:?}"),
            );
        }
    }
}

/// Subscribes to a route unless it is subscribed or has ended.
fn start(context: &Arc<IngestContext>, route: &Arc<Route>) {
    let mut task = route.task.lock();
    if matches!(*task, Task::None) {
        let RouteKey { subject, group, .. } = &route.key;
        let inbox = RouteInbox::new(context, route);
        let client = context.connections.any_client(route.role());
        let subscription = client.subscribe(subject, group, Arc::new(inbox));
        *task = Task::Running {
            _subscription: subscription,
        };
    }
}
