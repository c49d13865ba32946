//! What one data sync costs on this disk: 4 KiB writes into a pre-zeroed file.
use crate::arguments::Arguments;
use crate::report::{Clock, Failure, with_latencies};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const BLOCK: u64 = 4096;

/// Writes and syncs `count` blocks in `dir`, one after another.
pub fn run(arguments: &Arguments) -> Result<serde_json::Value, Failure> {
    let count = arguments.number("count", 2000);
    let path = Path::new(arguments.text("dir", ".")).join("sync-probe");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    file.write_all_at(&vec![0; (BLOCK * count) as usize], 0)?;
    file.sync_all()?;
    let block = [b'x'; BLOCK as usize];
    let clock = Clock::start();
    let mut micros = Vec::with_capacity(count as usize);
    for i in 0..count {
        let start = Instant::now();
        file.write_all_at(&block, i * BLOCK)?;
        file.sync_data()?;
        micros.push(start.elapsed().as_micros() as u32);
    }
    let report = clock.report(count);
    std::fs::remove_file(&path)?;
    Ok(with_latencies(report, micros))
}
