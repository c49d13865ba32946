//! The operating system's storage with a monotonic clock and a free space that only the test moves.
#![allow(dead_code)] // each test program uses its part
use bascule_log::StorageWrapper;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Clocked {
    ns: AtomicI64,
    taken_bytes: AtomicU64,
    asked: AtomicU64,
}

impl Clocked {
    pub fn pass(&self, ns: i64) {
        self.ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Leaves so much free from now on.
    pub fn leave(&self, bytes: u64) {
        self.taken_bytes.store(u64::MAX - bytes, Ordering::Relaxed);
    }

    /// How often the free space was asked for.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl StorageWrapper for Clocked {
    fn monotonic_ns(&self) -> i64 {
        self.ns.load(Ordering::Relaxed)
    }

    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(u64::MAX - self.taken_bytes.load(Ordering::Relaxed))
    }
}
