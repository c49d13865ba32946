//! The subscriptions of a client, by number; they outlive connections.
use super::{Inbox, Message};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Longest run of messages that an inbox gets at once.
pub(crate) const RUN: usize = 1024;

/// The server takes it, as far as is known.
const GRANTED: u8 = 0;
/// The server refused it.
const DENIED: u8 = 1;
/// It was refused, and the server was asked again.
const ASKED: u8 = 2;

/// One subscription.
pub(super) struct Entry {
    sid: u64,
    subject: String,
    /// Empty = none.
    group: String,
    inbox: Arc<dyn Inbox>,
    access: AtomicU8,
}

/// See the module.
#[derive(Default)]
pub(super) struct Table {
    last: u64,
    entries: BTreeMap<u64, Arc<Entry>>,
}

impl Entry {
    fn put(&self, out: &mut Vec<u8>) {
        // Writing to memory does not fail.
        let _ = match self.group.as_str() {
            "" => write!(out, "SUB {} {}\r\n", self.subject, self.sid),
            group => write!(out, "SUB {} {group} {}\r\n", self.subject, self.sid),
        };
    }
}

impl Table {
    /// Adds a subscription and writes its line; gives its number, which is never used again.
    pub(super) fn add(
        &mut self,
        subject: String,
        group: String,
        inbox: Arc<dyn Inbox>,
        put_line: impl FnOnce(&dyn Fn(&mut Vec<u8>)),
    ) -> u64 {
        self.last += 1;
        let entry = Arc::new(Entry {
            sid: self.last,
            subject,
            group,
            inbox,
            access: AtomicU8::new(GRANTED),
        });
        put_line(&|out| entry.put(out));
        self.entries.insert(self.last, entry);
        self.last
    }

    /// Whether there was one of that number.
    pub(super) fn remove(&mut self, sid: u64) -> bool {
        self.entries.remove(&sid).is_some()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(super) fn get(&self, sid: u64) -> Option<&Arc<Entry>> {
        self.entries.get(&sid)
    }

    /// Writes all of them, for a new connection.
    pub(super) fn put_all(&self, out: &mut Vec<u8>) {
        for entry in self.entries.values() {
            entry.ask_again();
            entry.put(out);
        }
    }

    /// Writes those again that the server refused; whether there are any.
    pub(super) fn put_denied(&self, out: &mut Vec<u8>) -> bool {
        let mut any = false;
        for entry in self.entries.values() {
            if entry.ask_again() {
                entry.put(out);
                any = true;
            }
        }
        any
    }

    /// The server refused what this error names. The inboxes to notify; `None` when it is not about a subscription.
    pub(super) fn deny(&self, error: &str) -> Option<Vec<Arc<dyn Inbox>>> {
        let (subject, group) = denied(error)?;
        let mut inboxes = Vec::new();
        for entry in self.entries.values() {
            if (entry.subject.as_str(), entry.group.as_str()) == (subject, group)
                && entry.access.swap(DENIED, Ordering::Relaxed) == GRANTED
            {
                inboxes.push(entry.inbox.clone());
            }
        }
        Some(inboxes)
    }

    /// The server has answered all that it was asked before: those it did not refuse again are granted.
    pub(super) fn grant(&self) -> Vec<Arc<dyn Inbox>> {
        let is_granted = |entry: &&Arc<Entry>| {
            let access = &entry.access;
            access
                .compare_exchange(ASKED, GRANTED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        let entries = self.entries.values();
        entries
            .filter(is_granted)
            .map(|entry| entry.inbox.clone())
            .collect()
    }
}

impl Entry {
    fn ask_again(&self) -> bool {
        let access = &self.access;
        access
            .compare_exchange(DENIED, ASKED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

/// Subject and queue group of `Permissions Violation for Subscription to "subject" using queue "group"`.
fn denied(error: &str) -> Option<(&str, &str)> {
    const PREFIX: &str = "permissions violation for subscription to \"";
    const QUEUE: &str = "\" using queue \"";
    let prefix = error.get(..PREFIX.len())?;
    let rest = error.get(PREFIX.len()..)?.strip_suffix('"')?;
    if !prefix.eq_ignore_ascii_case(PREFIX) {
        return None;
    }
    Some(rest.split_once(QUEUE).unwrap_or((rest, "")))
}

/// The messages of one read, by subscription, each in runs of at most [`RUN`].
#[derive(Default)]
pub(super) struct Sorted {
    runs: Vec<(u64, Arc<dyn Inbox>, Vec<Message>)>,
    /// The run of each subscription that is not full.
    open: std::collections::HashMap<u64, usize>,
    last: Option<(u64, usize)>,
    spare: Vec<Vec<Message>>,
}

impl Sorted {
    /// Adds a message; those of subscriptions that are gone are left out.
    pub(super) fn add(&mut self, table: &Table, sid: u64, message: impl FnOnce() -> Message) {
        let run = match self.last {
            Some((last, run)) if last == sid => Some(run),
            _ => self.open.get(&sid).copied(),
        };
        let run = run.filter(|run| self.runs.get(*run).is_some_and(|run| run.2.len() < RUN));
        let Some(run) = run.or_else(|| self.begin(table, sid)) else {
            return;
        };
        self.last = Some((sid, run));
        if let Some((_, _, messages)) = self.runs.get_mut(run) {
            messages.push(message());
        }
    }

    /// Begins a run of a subscription.
    fn begin(&mut self, table: &Table, sid: u64) -> Option<usize> {
        let entry = table.get(sid)?;
        let messages = self.spare.pop().unwrap_or_default();
        self.runs.push((sid, entry.inbox.clone(), messages));
        self.open.insert(sid, self.runs.len() - 1);
        Some(self.runs.len() - 1)
    }

    /// Hands them to the inboxes, each subscription's in order.
    pub(super) fn deliver(&mut self) {
        for (_, inbox, mut messages) in self.runs.drain(..) {
            inbox.take(&mut messages);
            messages.clear();
            if self.spare.len() < 16 {
                self.spare.push(messages);
            }
        }
        self.open.clear();
        self.last = None;
    }
}

/// A part of what was read; nothing is kept for an empty one.
pub(super) fn part(bytes: &Bytes, span: super::protocol::Span) -> Bytes {
    if span.is_empty() {
        Bytes::new()
    } else {
        bytes.slice(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[derive(Default)]
    struct Seen(Mutex<Vec<String>>);

    impl Inbox for Seen {
        fn take(&self, messages: &mut Vec<Message>) {
            self.0.lock().push(messages.len().to_string());
        }
        fn on_denied(&self, text: &str) {
            self.0.lock().push(text.to_owned());
        }
    }

    fn table() -> (Table, Arc<Seen>, Vec<u8>) {
        let (mut table, seen, mut out) = (Table::default(), Arc::new(Seen::default()), Vec::new());
        for (subject, group) in [("a.b", ""), ("a.b", "g")] {
            table.add(subject.into(), group.into(), seen.clone(), |put| {
                put(&mut out);
            });
        }
        (table, seen, out)
    }

    #[test]
    fn lines_name_subject_group_and_number() {
        let (mut table, _, out) = table();
        assert_eq!(out, b"SUB a.b 1\r\nSUB a.b g 2\r\n");
        assert!(table.remove(1) && !table.remove(1));
        let mut all = Vec::new();
        table.put_all(&mut all);
        assert_eq!(all, b"SUB a.b g 2\r\n");
    }

    #[test]
    fn a_denied_subscription_is_asked_for_again_and_granted_when_it_is_not_refused() {
        let (table, _, _) = table();
        let refusal = "Permissions Violation for Subscription to \"a.b\"";
        let queue = "Permissions Violation for Subscription to \"a.b\" using queue \"g\"";
        assert!(
            table
                .deny("Permissions Violation for Publish to \"a.b\"")
                .is_none()
        );
        assert_eq!(table.deny(refusal).map(|inboxes| inboxes.len()), Some(1));
        assert_eq!(
            table.deny(refusal).map(|inboxes| inboxes.len()),
            Some(0),
            "once"
        );
        assert_eq!(table.deny(queue).map(|inboxes| inboxes.len()), Some(1));
        assert!(table.grant().is_empty());
        let mut out = Vec::new();
        assert!(table.put_denied(&mut out));
        assert_eq!(out, b"SUB a.b 1\r\nSUB a.b g 2\r\n");
        assert_eq!(table.deny(queue).map(|inboxes| inboxes.len()), Some(0));
        assert_eq!(table.grant().len(), 1);
    }

    #[test]
    fn messages_come_in_runs_of_their_subscription() {
        let (table, seen, _) = table();
        let mut sorted = Sorted::default();
        for i in 0..3000 {
            sorted.add(&table, 1 + u64::from(i % 3 == 0), Message::default);
            sorted.add(&table, 9, Message::default);
        }
        sorted.deliver();
        let mut runs = std::mem::take(&mut *seen.0.lock());
        runs.sort();
        assert_eq!(runs, ["1000", "1024", "976"]);
    }
}
