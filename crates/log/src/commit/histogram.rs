//! Durations, counted in buckets whose bounds double.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bound of the first bucket, ns: 2¹⁶, about 66 µs.
const FIRST_BITS: u32 = 16;
/// Buckets with a bound; the last ends at about 8.6 s.
pub const BOUNDS: usize = 18;

/// Counts of durations. Recording is two additions without a lock.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One bucket for each bound, inclusive, and one for what is longer than the last.
    counts: [AtomicU64; BOUNDS + 1],
    nanos: AtomicU64,
}

/// What was recorded up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// By bucket, each for itself.
    pub counts: [u64; BOUNDS + 1],
    /// All durations together, ns.
    pub nanos: u64,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bits = u64::BITS - nanos.saturating_sub(1).leading_zeros();
        let bucket = (bits.saturating_sub(FIRST_BITS) as usize).min(BOUNDS);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// What was recorded so far.
    pub fn durations(&self) -> Durations {
        Durations {
            counts: std::array::from_fn(|bucket| {
                let count = self.counts.get(bucket);
                count.map_or(0, |count| count.load(Ordering::Relaxed))
            }),
            nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}

/// Upper bounds of the buckets, inclusive, ns.
pub fn bounds() -> [u64; BOUNDS] {
    std::array::from_fn(|bucket| 1 << (FIRST_BITS + bucket as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let mut nanos = vec![0, 1, u64::MAX];
        for bound in bounds() {
            nanos.extend([bound - 1, bound, bound + 1]);
        }
        for nanos in nanos {
            let histogram = Histogram::default();
            histogram.record(Duration::from_nanos(nanos));
            let expected = bounds().iter().position(|bound| nanos <= *bound);
            let found = histogram.durations();
            let bucket = found.counts.iter().position(|count| *count == 1);
            assert_eq!(bucket, Some(expected.unwrap_or(BOUNDS)), "{nanos} ns");
            assert_eq!((found.counts.iter().sum::<u64>(), found.nanos), (1, nanos));
        }
    }
}
