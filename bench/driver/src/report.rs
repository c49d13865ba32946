//! Figures of one run as JSON.
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A failed run, for people.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// From a sentence.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Wall and CPU time since the start of a run.
pub struct Clock {
    start: Instant,
    cpu: Duration,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            cpu: own_cpu(),
        }
    }

    /// `count` things done: rate, seconds, the driver's own CPU seconds.
    pub fn report(&self, count: u64) -> Value {
        let seconds = self.start.elapsed().as_secs_f64();
        json!({
            "count": count,
            "seconds": seconds,
            "rate": count as f64 / seconds,
            "driver_cpu_seconds": own_cpu().saturating_sub(self.cpu).as_secs_f64(),
        })
    }
}

/// User and system time of this process, from `/proc` (ticks of 10 ms).
fn own_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}

/// Adds p50, p99 and maximum of latencies in microseconds.
pub fn with_latencies(mut report: Value, mut micros: Vec<u32>) -> Value {
    micros.sort_unstable();
    let at = |permille: usize| {
        micros.get((micros.len() * permille / 1000).min(micros.len().saturating_sub(1)))
    };
    if let Some(fields) = report.as_object_mut() {
        for (name, permille) in [("p50_us", 500), ("p99_us", 990), ("max_us", 1000)] {
            fields.insert(name.into(), json!(at(permille)));
        }
    }
    report
}
