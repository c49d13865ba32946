//! Members of consumer groups in a cluster: metadata, so that every broker knows them, and a poll asks nobody.
//!
//! A membership belongs to a run of the broker of its connection, and ends with it. One that could not be ended is ended again
//! until it is.
use super::context::IggyContext;
use super::groups::GroupKey;
use super::refused::Refused;
use crate::events::{Caller, Rejection};
use crate::view::{StreamView, TopicGroup};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// How long the control plane may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between two tries to end a membership.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether members are metadata.
pub(super) fn is_shared(context: &IggyContext) -> bool {
    context.requests.forwarder().is_connected()
}

/// The number of the connection of this count; never 0. In a cluster its first byte is the broker's number, so that those of two brokers
/// differ. After 2^24 connections, of a broker alone 2^32, numbers come again.
pub(super) fn number(context: &IggyContext, count: u32) -> u32 {
    match context.requests.forwarder().own_number() {
        Some(broker) => (broker as u32) << 24 | (count & 0xff_ffff).max(1),
        None => count.max(1),
    }
}

/// The place of a connection of this broker among the members.
pub(super) fn place(context: &IggyContext, group: &TopicGroup, client: u32) -> Option<usize> {
    let is_own =
        |(broker, number): &(String, u32)| *number == client && *broker == context.broker_id;
    group.members.iter().position(is_own)
}

/// Makes a connection a member; returns when the view shows it.
///
/// # Errors
/// 5000: the group is gone; 1.
pub(super) async fn join(
    context: &IggyContext,
    topic: &StreamView,
    group: &TopicGroup,
    client: u32,
) -> Result<(), Refused> {
    let body = json!({
        "namespace": topic.namespace,
        "stream": topic.name,
        "created": group.created,
        "client": client,
    });
    Ok(request(context, "iggygroups/JOIN", &body).await?)
}

/// Ends a membership; returns after the first try, and tries again in the background if that failed.
pub(super) async fn leave(context: &Arc<IggyContext>, group: GroupKey, client: u32) {
    if try_leave(context, group, client).await.is_err() {
        leave_later(context, group, client);
    }
}

/// Ends a membership in the background.
pub(super) fn leave_later(context: &Arc<IggyContext>, group: GroupKey, client: u32) {
    let context = context.clone();
    // Without a runtime the broker has stopped, and its memberships end with its run.
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    runtime.spawn(async move {
        while try_leave(&context, group, client).await.is_err() && context.run_state.is_serving() {
            tokio::time::sleep(PAUSE).await;
        }
    });
}

async fn try_leave(context: &IggyContext, group: GroupKey, client: u32) -> Result<(), Rejection> {
    let body = json!({"created": group.created(), "client": client});
    request(context, "iggygroups/LEAVE", &body).await
}

async fn request(context: &IggyContext, method: &str, body: &Value) -> Result<(), Rejection> {
    let body = Bytes::from(body.to_string());
    let events = &context.listener.events;
    let answer = events.request(method, body, Caller::default(), Some(TIMEOUT));
    answer.await.map(drop)
}
