//! Calls of the gRPC port that have ended, by method and status.
use std::sync::atomic::{AtomicU64, Ordering};
use tonic::Code;

/// Paths of the methods that are served, sorted. Calls of every other path count as one more method: what a client sends
/// adds no series.
const METHODS: [&str; 30] = [
    "/arrow.flight.protocol.FlightService/DoAction",
    "/arrow.flight.protocol.FlightService/DoExchange",
    "/arrow.flight.protocol.FlightService/DoGet",
    "/arrow.flight.protocol.FlightService/DoPut",
    "/arrow.flight.protocol.FlightService/GetFlightInfo",
    "/arrow.flight.protocol.FlightService/GetSchema",
    "/arrow.flight.protocol.FlightService/Handshake",
    "/arrow.flight.protocol.FlightService/ListActions",
    "/arrow.flight.protocol.FlightService/ListFlights",
    "/arrow.flight.protocol.FlightService/PollFlightInfo",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/proto.API/CreateStream",
    "/proto.API/DeleteStream",
    "/proto.API/FetchConsumerGroupAssignments",
    "/proto.API/FetchCursor",
    "/proto.API/FetchMetadata",
    "/proto.API/FetchPartitionMetadata",
    "/proto.API/JoinConsumerGroup",
    "/proto.API/LeaveConsumerGroup",
    "/proto.API/PauseStream",
    "/proto.API/Publish",
    "/proto.API/PublishAsync",
    "/proto.API/PublishToSubject",
    "/proto.API/ReportConsumerGroupCoordinator",
    "/proto.API/SetCursor",
    "/proto.API/SetStreamReadonly",
    "/proto.API/Subscribe",
];
/// Labels of calls of any other path.
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

/// The place of a method in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method(usize);

impl Method {
    /// The method that a path names.
    pub(crate) fn of(path: &str) -> Self {
        Self(METHODS.binary_search(&path).unwrap_or(METHODS.len()))
    }
}

/// Calls that have ended, of one method.
type Counts = [AtomicU64; CODES.len()];

/// The counters. Counting is one addition without a lock.
#[derive(Debug, Default)]
pub struct CallCounts([Counts; METHODS.len() + 1]);

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
        let methods = METHODS.iter().map(|path| split(path)).chain([OTHER]);
        let mut series = Vec::new();
        for ((service, method), counts) in methods.zip(&self.0) {
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

/// Service and method of a path of the table.
fn split(path: &str) -> (&str, &str) {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split_once('/').unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_sorted_and_those_of_the_protocol_are_all_there() {
        assert!(METHODS.is_sorted());
        let root = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../specs/proto/liftbridge.proto"
        );
        let protocol = std::fs::read_to_string(root).unwrap();
        let named: Vec<String> = protocol
            .lines()
            .filter_map(|line| line.trim().strip_prefix("rpc "))
            .filter_map(|line| line.split(['(', ' ']).next())
            .map(|name| format!("/proto.API/{name}"))
            .collect();
        assert_eq!(named.len(), 16);
        for path in named {
            assert!(METHODS.contains(&path.as_str()), "{path}");
        }
    }

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
