//! Lets members of a consumer group wait for its next change without asking the control plane again and again.
//!
//! The control plane numbers the versions of each group. A member that has seen the present one waits here, at most for
//! the time that its request names, until there is another; then its request is forwarded.
mod members;

pub(crate) use members::{Members, Membership};

use parking_lot::Mutex;
use prost::Message;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::watch;

/// Longest wait of one request.
const LONGEST: Duration = Duration::from_secs(30);

/// The present version of each group that is coordinated here.
#[derive(Debug, Default)]
pub struct GroupVersions(Mutex<HashMap<String, watch::Sender<u64>>>);

/// The part of `FetchConsumerGroupAssignmentsRequest` that says how long to wait, and for what.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    group: String,
    #[prost(uint64, tag = "101")]
    seen_version: u64,
    #[prost(uint32, tag = "102")]
    wait_ms: u32,
}

impl GroupVersions {
    /// Wakes callers that wait for another version of these groups; version 0 = the group is gone.
    pub fn set(&self, versions: Vec<(String, u64)>) {
        let mut known = self.0.lock();
        for (group, version) in versions {
            if version == 0 {
                known.remove(&group);
            } else {
                known
                    .entry(group)
                    .or_insert_with(|| watch::Sender::new(0))
                    .send_replace(version);
            }
        }
    }

    /// Waits as `request` asks; returns at once when it asks for no wait, knows an older version, or cannot be read.
    pub(crate) async fn wait(&self, request: &[u8]) {
        let Ok(wait) = Request::decode(request) else {
            return;
        };
        let Some(mut changes) = self.subscribe(&wait) else {
            return;
        };
        let limit = Duration::from_millis(wait.wait_ms.into()).min(LONGEST);
        // However it ends, the control plane says what there is now.
        let _ended = tokio::time::timeout(limit, changes.changed()).await;
    }

    fn subscribe(&self, wait: &Request) -> Option<watch::Receiver<u64>> {
        if wait.wait_ms == 0 {
            return None;
        }
        let known = self.0.lock();
        let present = known.get(&wait.group)?;
        (*present.borrow() == wait.seen_version).then(|| present.subscribe())
    }

    /// Ends every wait.
    pub fn close(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;

    fn request(group: &str, seen_version: u64, wait_ms: u32) -> Vec<u8> {
        Request {
            group: group.into(),
            seen_version,
            wait_ms,
        }
        .encode_to_vec()
    }

    async fn waits(versions: &GroupVersions, request: Vec<u8>) -> bool {
        tokio::time::timeout(Duration::from_millis(20), versions.wait(&request))
            .await
            .is_err()
    }

    #[tokio::test]
    async fn only_who_knows_the_present_version_waits() {
        let versions = GroupVersions::default();
        versions.set(vec![("g".into(), 7)]);
        assert!(waits(&versions, request("g", 7, 10_000)).await);
        assert!(!waits(&versions, request("g", 6, 10_000)).await, "older");
        assert!(!waits(&versions, request("g", 7, 0)).await, "no wait");
        assert!(!waits(&versions, request("h", 7, 10_000)).await, "no group");
        assert!(!waits(&versions, b"\xff\xff".to_vec()).await, "garbage");
        assert!(!waits(&versions, request("g", 7, 5)).await, "its own limit");
    }

    #[tokio::test]
    async fn a_new_version_the_end_of_the_group_and_the_end_of_all_wake() {
        let wake: [fn(&GroupVersions); 3] = [
            |versions| versions.set(vec![("g".into(), 8)]),
            |versions| versions.set(vec![("g".into(), 0)]),
            GroupVersions::close,
        ];
        for wake in wake {
            let versions = Arc::new(GroupVersions::default());
            versions.set(vec![("g".into(), 7), ("h".into(), 7)]);
            let waiting = versions.clone();
            let began = Instant::now();
            let waiter = tokio::spawn(async move { waiting.wait(&request("g", 7, 20_000)).await });
            while versions.0.lock()["g"].receiver_count() == 0 {
                tokio::task::yield_now().await;
            }
            wake(&versions);
            waiter.await.unwrap();
            assert!(began.elapsed() < Duration::from_secs(10));
        }
    }
}
