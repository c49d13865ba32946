//! How a call ends, for the counters: exactly one status for each call that reached the port.
use super::Admission;
use crate::grpc_timeout::parse_timeout;
use crate::statistics::Method;
use http::HeaderMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::Code;

const STATUS: &str = "grpc-status";
const TIMEOUT: &str = "grpc-timeout";
/// A call that is dropped in the last part, one in so many, of its time has met its deadline.
const DEADLINE_SHARE: u32 = 20;

/// A call until its status is known. Dropped before: its caller has gone, or its deadline has passed.
pub(super) struct Ending {
    admission: Arc<Admission>,
    method: Method,
    /// When the caller set a deadline: the arrival and the time from there.
    deadline: Option<(Instant, Duration)>,
    counted: bool,
}

impl Ending {
    /// Of a call that has just arrived.
    pub(super) fn new(admission: &Arc<Admission>, path: &str, headers: &HeaderMap) -> Self {
        let timeout = headers.get(TIMEOUT);
        let timeout = timeout.and_then(|value| parse_timeout(value.as_bytes()));
        Self {
            admission: admission.clone(),
            method: Method::of(path),
            deadline: timeout.map(|timeout| (Instant::now(), timeout)),
            counted: false,
        }
    }

    /// The call ends with this status; the first one counts.
    pub(super) fn end(&mut self, code: Code) {
        if !std::mem::replace(&mut self.counted, true) {
            self.admission.statistics.calls.add(self.method, code);
        }
    }

    /// The call ends when these headers, or trailers, carry a status.
    pub(super) fn look(&mut self, headers: &HeaderMap) {
        if let Some(status) = headers.get(STATUS) {
            self.end(Code::from_bytes(status.as_bytes()));
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // A caller ends the call itself at its deadline, which arrives before ours: clients round up what they send.
        let is_late = |(arrived, timeout): (Instant, Duration)| {
            arrived.elapsed().saturating_add(timeout / DEADLINE_SHARE) >= timeout
        };
        self.end(if self.deadline.is_some_and(is_late) {
            Code::DeadlineExceeded
        } else {
            Code::Cancelled
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn counted(timeout: Option<&'static str>, end: impl FnOnce(&mut Ending)) -> Vec<(String, u64)> {
        let admission = Arc::new(Admission::new(Limits::default(), Arc::default()));
        let mut headers = HeaderMap::new();
        headers.extend(timeout.map(|value| {
            let name = http::HeaderName::from_static(TIMEOUT);
            (name, http::HeaderValue::from_static(value))
        }));
        let mut ending = Ending::new(&admission, "/proto.API/Subscribe", &headers);
        end(&mut ending);
        drop(ending);
        admission.statistics.calls.series()
    }

    fn one(code: &str) -> Vec<(String, u64)> {
        let labels = format!("service=\"proto.API\",method=\"Subscribe\",code=\"{code}\"");
        vec![(labels, 1)]
    }

    #[test]
    fn the_first_status_counts_and_a_dropped_call_was_cancelled_or_too_late() {
        let twice = |ending: &mut Ending| {
            ending.end(Code::NotFound);
            ending.end(Code::Ok);
        };
        assert_eq!(counted(None, twice), one("NOT_FOUND"));
        assert_eq!(counted(None, |_| ()), one("CANCELLED"));
        assert_eq!(counted(Some("1H"), |_| ()), one("CANCELLED"));
        assert_eq!(counted(Some("0m"), |_| ()), one("DEADLINE_EXCEEDED"));
        let late = |ending: &mut Ending| {
            let (arrived, timeout) = ending.deadline.unwrap();
            ending.deadline = Some((arrived.checked_sub(timeout * 96 / 100).unwrap(), timeout));
        };
        assert_eq!(counted(Some("10S"), late), one("DEADLINE_EXCEEDED"));
    }

    #[test]
    fn headers_without_a_status_end_nothing() {
        let mut headers = HeaderMap::new();
        let look = |headers: HeaderMap| move |ending: &mut Ending| ending.look(&headers);
        assert_eq!(counted(None, look(headers.clone())), one("CANCELLED"));
        headers.insert(STATUS, http::HeaderValue::from_static("5"));
        assert_eq!(counted(None, look(headers)), one("NOT_FOUND"));
    }
}
