//! A line in the log for calls that are denied: who, what, from where, by which rule.
//!
//! A denied client may retry as fast as the network allows, so the lines are bounded: the same denial once in
//! [`WINDOW`], and at most [`LINES`] of them. What was left out is counted, and said with the next line.
use super::Action;
use crate::events::Events;
use crate::events::Level;
use crate::tls::Peer;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(10);
const LINES: usize = 100;

/// See the module.
#[derive(Debug)]
pub(super) struct Audit {
    events: Arc<Events>,
    window: Mutex<Window>,
    keyed: RandomState,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    seen: HashSet<u64>,
    left_out: u64,
}

impl Audit {
    pub(super) fn new(events: Arc<Events>) -> Self {
        Self {
            events,
            window: Mutex::new(Window {
                since: Instant::now(),
                seen: HashSet::new(),
                left_out: 0,
            }),
            keyed: RandomState::new(),
        }
    }

    /// Takes note of a denial. `resource` is bounded; `rule` is asked for only when the line is written.
    pub(super) fn note(
        &self,
        peer: &Peer,
        action: Action,
        resource: &str,
        rule: impl FnOnce() -> String,
    ) {
        let address = peer.address.map(|address| address.ip());
        let key = self
            .keyed
            .hash_one((&peer.identity, address, action, resource));
        let Some(left_out) = self.window.lock().admits(key) else {
            return;
        };
        let mut fields = serde_json::json!({
            "client": peer.identity.as_deref(),
            "peer": peer.address.map(|address| address.to_string()),
            "action": action.name(),
            "resource": resource,
            "rule": rule(),
        });
        if left_out > 0 {
            fields["left_out"] = left_out.into();
        }
        let text = format!("denied: {} on {resource:?}", action.name());
        self.events.log(Level::Warning, "access", text, fields);
    }
}

impl Window {
    /// How many denials were left out before this one; `None` = this one is left out.
    fn admits(&mut self, key: u64) -> Option<u64> {
        if self.since.elapsed() > WINDOW {
            self.since = Instant::now();
            self.seen.clear();
        }
        if self.seen.len() >= LINES || !self.seen.insert(key) {
            self.left_out += 1;
            return None;
        }
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_what_is_left_out_is_said() {
        let events = Arc::new(Events::new(1000).unwrap());
        let audit = Audit::new(events.clone());
        let peer = Peer::default();
        let rule = || "no rule allows it".to_owned();
        for _ in 0..3 {
            audit.note(&peer, Action::Publish, "orders", rule);
        }
        audit.note(&peer, Action::Subscribe, "orders", rule);
        let lines: Vec<serde_json::Value> = events
            .poll(10)
            .iter()
            .map(|event| match event {
                crate::events::Event::Log { fields, .. } => fields.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["action"], "Publish");
        assert_eq!(lines[0]["rule"], "no rule allows it");
        assert_eq!(lines[1]["left_out"], 2);
        for number in 0..2 * LINES {
            audit.note(&peer, Action::Publish, &number.to_string(), rule);
        }
        assert_eq!(events.poll(1000).len(), LINES - 2);
    }
}
