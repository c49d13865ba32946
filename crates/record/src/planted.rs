//! Bugs planted on purpose, to see that the tests would find them (reliability §5.4).
//!
//! Only with the feature `planted`; without it [`is`] is `false` at compile time and nothing of a bug is left. At most
//! one is alive at a time: the number in the environment variable `BASCULE_PLANTED`, or the one `set` last.

/// Whether bug `number` of the list is alive.
#[cfg(not(feature = "planted"))]
#[inline]
pub const fn is(_number: u32) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use enabled::{is, set};

#[cfg(feature = "planted")]
mod enabled {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static ALIVE: OnceLock<AtomicU32> = OnceLock::new();

    fn alive() -> &'static AtomicU32 {
        ALIVE.get_or_init(|| {
            let number = std::env::var("BASCULE_PLANTED").ok();
            AtomicU32::new(number.and_then(|number| number.parse().ok()).unwrap_or(0))
        })
    }

    /// Whether bug `number` of the list is alive.
    pub fn is(number: u32) -> bool {
        alive().load(Ordering::Relaxed) == number
    }

    /// Makes this bug the one that is alive; 0 for none.
    pub fn set(number: u32) {
        alive().store(number, Ordering::Relaxed);
    }
}
