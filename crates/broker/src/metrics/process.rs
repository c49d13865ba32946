//! Metrics of this process from the kernel.
use rustix::process::{Resource, getrlimit};

/// Unit of processor time in `/proc`: `USER_HZ`, which Linux fixes at 100 for user space.
const TICK_NANOS: u64 = 10_000_000;
const KIB: u64 = 1024;
/// Fields of `/proc/self/stat` after the name of the command, which may hold spaces: user and system time.
const USER_TIME: usize = 11;
const SYSTEM_TIME: usize = 12;

/// The process; a value that `/proc` does not give is absent.
pub(super) fn process() -> Vec<(&'static str, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    // One is what lists them.
    let descriptors = std::fs::read_dir("/proc/self/fd").map(|files| files.count() as u64 - 1);
    let values = [
        ("process_cpu_nanos", processor_nanos()),
        ("process_resident_bytes", field("VmRSS:").map(|n| n * KIB)),
        ("process_virtual_bytes", field("VmSize:").map(|n| n * KIB)),
        ("process_threads", field("Threads:")),
        ("process_open_fds", descriptors.ok()),
        ("process_max_fds", getrlimit(Resource::Nofile).current),
    ];
    let known = values
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    known.collect()
}

fn processor_nanos() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((ticks(USER_TIME)? + ticks(SYSTEM_TIME)?) * TICK_NANOS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_gives_every_value_and_they_are_plausible() {
        let values: std::collections::HashMap<_, _> = process().into_iter().collect();
        assert_eq!(values.len(), 6);
        assert!(values["process_resident_bytes"] > 1 << 20);
        assert!(values["process_virtual_bytes"] >= values["process_resident_bytes"]);
        assert!(values["process_threads"] >= 1 && values["process_open_fds"] >= 3);
        assert!(values["process_open_fds"] < values["process_max_fds"]);
        let until = std::time::Instant::now() + std::time::Duration::from_millis(30);
        while std::time::Instant::now() < until {}
        assert!(processor_nanos() > Some(0));
    }
}
