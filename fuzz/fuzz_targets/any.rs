//! Drives the target that `BASCULE_FUZZ_TARGET` names. Memory is bounded: an allocation beyond 512 MiB is a crash.
#![no_main]

use bascule_fuzz::{TARGETS, Target, target};
use cap::Cap;
use std::alloc::System;
use std::sync::LazyLock;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, 512 << 20);

static CHOSEN: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("BASCULE_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| {
        let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        panic!("BASCULE_FUZZ_TARGET={name:?} is none of {}", names.join(", "))
    })
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| CHOSEN(data));
