//! Calls of the gRPC port that have ended, by method and status.
use bascule_wire::methods::{self, METHODS};
use std::sync::atomic::{AtomicU64, Ordering};
use tonic::Code;

/// Labels of calls of any other path, which count as one more method: what a client sends adds no series.
const OTHER: (&str, &str) = ("other", "other");

/// Names of the codes of gRPC, by number.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The place of a method in the table of methods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method(usize);

impl Method {
    /// The method that a path names.
    pub(crate) fn of(path: &str) -> Self {
        Self(methods::Method::index(path).unwrap_or(METHODS.len()))
    }
}

/// Calls that have ended, of one method.
type Counts = [AtomicU64; CODES.len()];

/// The counters. Counting is one addition without a lock.
#[derive(Debug)]
pub struct CallCounts([Counts; METHODS.len() + 1]);

impl Default for CallCounts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counts::default()))
    }
}

impl CallCounts {
    /// Counts a call that has ended.
    pub(crate) fn add(&self, method: Method, code: Code) {
        let counter = self.0.get(method.0).and_then(|of| of.get(code as usize));
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Labels without braces, and the count of each method and code that has occurred.
    pub(crate) fn series(&self) -> Vec<(String, u64)> {
        let labels = METHODS
            .iter()
            .map(|method| (method.service(), method.name()))
            .chain([OTHER]);
        let mut series = Vec::new();
        for ((service, method), counts) in labels.zip(&self.0) {
            for (code, count) in CODES.iter().zip(counts) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels =
                        format!("service=\"{service}\",method=\"{method}\",code=\"{code}\"");
                    series.push((labels, count));
                }
            }
        }
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_under_its_method_and_code_and_unknown_paths_under_one() {
        let counts = CallCounts::default();
        assert!(counts.series().is_empty());
        counts.add(Method::of("/proto.API/Publish"), Code::Unauthenticated);
        for path in ["/proto.API/Nothing", "", "/a\"b/c", "/proto.API/Publish/"] {
            counts.add(Method::of(path), Code::Unimplemented);
        }
        let expected = [
            (
                "service=\"proto.API\",method=\"Publish\",code=\"UNAUTHENTICATED\"",
                1,
            ),
            (
                "service=\"other\",method=\"other\",code=\"UNIMPLEMENTED\"",
                4,
            ),
        ];
        assert_eq!(
            counts.series(),
            expected.map(|(labels, n)| (labels.to_owned(), n))
        );
    }
}
