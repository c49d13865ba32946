//! Checks of everything that the broker needs, for probes and people.
use crate::clock::{cautious_now_ns, now_ns};
use crate::nats::{NatsLink, Reason};
use crate::run_state::RunState;
use crate::view::View;
use crate::watchdog::EventLoop;
use arc_swap::ArcSwap;
use bascule_log::GroupCommitter;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// Less than this free, and appends fail: a segment is preallocated in steps of this size.
const MIN_FREE: u64 = 16 << 20;
/// A clock that is further from where the monotonic clock puts it is reported, ns.
const CLOCK_OFF: i64 = 1_000_000_000;
const GIB: f64 = (1_u64 << 30) as f64;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should be.
    Ok,
    /// Somebody should look; the broker serves all the same.
    Warning,
    /// The broker is not ready.
    Failed,
}

/// One thing that the broker needs.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Check {
    pub name: &'static str,
    pub outcome: Outcome,
    /// One clause, also when all is well.
    pub reason: String,
}

/// Dependencies of checks.
#[derive(Debug)]
pub(crate) struct CheckContext {
    pub run_state: Arc<RunState>,
    pub view: Arc<ArcSwap<View>>,
    pub nats: NatsLink,
    pub event_loop: Arc<EventLoop>,
    /// Weak: the last handle must not be dropped on a thread of the runtime.
    pub committer: Weak<GroupCommitter>,
    pub data: PathBuf,
}

impl CheckContext {
    /// Whether no check fails. Blocks as [`CheckContext::checks`].
    pub fn is_ready(&self) -> bool {
        self.checks()
            .iter()
            .all(|check| check.outcome != Outcome::Failed)
    }

    /// Whether the start is over, with what it is doing when it is not.
    pub fn startup(&self) -> Check {
        let run_state = &self.run_state;
        if run_state.has_served() {
            return ok("startup", "the broker has started".to_owned());
        }
        failed("startup", run_state.stage())
    }

    /// Every check. Blocks for as long as the data directory's file system does not answer.
    pub fn checks(&self) -> Vec<Check> {
        let view = self.view.load();
        vec![
            self.startup(),
            self.serving(),
            self.metadata(),
            self.storage(),
            self.disk_space(),
            partitions(&view),
            self.nats(),
            self.control_plane(),
            clock(),
            replicas(&view),
        ]
    }

    fn serving(&self) -> Check {
        match (self.run_state.is_serving(), self.run_state.has_served()) {
            (true, _) => ok("serving", "calls are accepted".to_owned()),
            (false, true) => failed("serving", "the broker is stopping".to_owned()),
            (false, false) => failed("serving", "the broker is starting".to_owned()),
        }
    }

    fn metadata(&self) -> Check {
        if self.run_state.is_metadata_open() {
            return ok("metadata log", "open".to_owned());
        }
        failed("metadata log", "not open yet".to_owned())
    }

    fn storage(&self) -> Check {
        let failure = match self.committer.upgrade() {
            Some(committer) => committer.failure(),
            None => Some("the data directory is closed".to_owned()),
        };
        match failure {
            Some(failure) => failed(
                "data directory",
                format!("writes are refused until a restart: {failure}"),
            ),
            None => ok(
                "data directory",
                format!("{} is locked and synced", self.data.display()),
            ),
        }
    }

    fn disk_space(&self) -> Check {
        match space(&self.data) {
            Err(error) => failed(
                "disk space",
                format!("{} cannot be read: {error}", self.data.display()),
            ),
            Ok(space) => {
                let (free, size) = (space.free as f64 / GIB, space.size as f64 / GIB);
                let text = format!("{free:.2} of {size:.2} GiB are free");
                if space.free < MIN_FREE {
                    failed(
                        "disk space",
                        format!("{text}: writes are refused until there is space"),
                    )
                } else {
                    ok("disk space", text)
                }
            }
        }
    }

    fn control_plane(&self) -> Check {
        if self.event_loop.is_blocked() {
            let text = "its event loop does not run: admin calls wait, data is served";
            return warning("control plane", text.to_owned());
        }
        ok("control plane", "its event loop runs".to_owned())
    }

    fn nats(&self) -> Check {
        let nats = self.nats.state();
        if nats.state == "connected" {
            return ok("nats", "connected".to_owned());
        }
        let why = match nats.reason {
            Some(Reason::LoginRefused) => "it refused the login: ",
            Some(Reason::TlsFailed) => "TLS failed: ",
            _ => "",
        };
        let details = if nats.text.is_empty() {
            "not connected yet"
        } else {
            &nats.text
        };
        let text = format!("ingest waits for NATS: {why}{details}");
        if self.run_state.needs_nats() {
            failed("nats", text)
        } else {
            warning("nats", text)
        }
    }
}

/// A partition that is not open refuses its own readers and writers, not those of others: never more than a warning.
fn partitions(view: &View) -> Check {
    let (mut all, mut absent, mut refusing) = (0, Vec::new(), Vec::new());
    for stream in view.streams() {
        for partition in &stream.partitions {
            all += 1;
            let name = || format!("{}/{}", stream.name, partition.number);
            match &partition.handle {
                None if !partition.paused => absent.push(name()),
                Some(handle) if handle.failure().is_some() => refusing.push(name()),
                _ => {}
            }
        }
    }
    let first = |names: &[String]| names.first().cloned().unwrap_or_default();
    match (absent.len(), refusing.len()) {
        (0, 0) => ok("partitions", format!("{all} are served")),
        (0, some) => {
            let text = format!("{some} of {all} refuse writes, e.g. {}", first(&refusing));
            warning("partitions", text)
        }
        (some, _) => {
            let text = format!("{some} of {all} are not open, e.g. {}", first(&absent));
            warning("partitions", text)
        }
    }
}

fn clock() -> Check {
    let ahead = now_ns().saturating_sub(cautious_now_ns());
    if ahead.abs() < CLOCK_OFF {
        return ok("clock", "as at the start of the broker".to_owned());
    }
    let seconds = ahead / 1_000_000_000;
    let text = format!("{seconds} s ahead of the monotonic clock since the start: retention waits");
    warning("clock", text)
}

fn replicas(view: &View) -> Check {
    let all = view.streams().flat_map(|stream| &stream.partitions);
    let without = all.filter(|partition| partition.leader.is_empty() || partition.isr.is_empty());
    match without.count() {
        0 => ok(
            "isr",
            "every partition has a leader and in-sync replicas".to_owned(),
        ),
        some => warning(
            "isr",
            format!("{some} partitions have no leader or no in-sync replica"),
        ),
    }
}

/// Space of a file system, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Bytes that an ordinary user may still write.
    pub free: u64,
    /// All of it.
    pub size: u64,
}

/// Space in the file system of `path`. Blocks until the file system answers.
///
/// # Errors
/// The system's.
pub(crate) fn space(path: &Path) -> std::io::Result<Space> {
    let found = rustix::fs::statvfs(path)?;
    Ok(Space {
        free: found.f_bavail.saturating_mul(found.f_frsize),
        size: found.f_blocks.saturating_mul(found.f_frsize),
    })
}

fn ok(name: &'static str, reason: String) -> Check {
    check(name, Outcome::Ok, reason)
}

fn warning(name: &'static str, reason: String) -> Check {
    check(name, Outcome::Warning, reason)
}

fn failed(name: &'static str, reason: String) -> Check {
    check(name, Outcome::Failed, reason)
}

fn check(name: &'static str, outcome: Outcome, reason: String) -> Check {
    Check {
        name,
        outcome,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_less_free_than_it_has() {
        let found = space(Path::new("/")).unwrap();
        assert!(found.free <= found.size && found.size > 0);
        assert!(space(Path::new("/nowhere/at/all")).is_err());
    }
}
