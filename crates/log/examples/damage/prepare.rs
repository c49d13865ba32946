//! The logs that are damaged: small, with everything a log can have on disk.
use crate::Dice;
use crate::apply::{Injury, apply};
use bascule_log::{Durability, GroupCommitter, Log, LogId, LogOptions, OsStorage, Retention};
use bascule_record::{BatchBuilder, BatchLimits, Codec, Producer, RecordRef};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

/// A log as it lay on disk, with what is true of it.
pub struct Template {
    pub name: &'static str,
    pub identity: LogId,
    pub options: LogOptions,
    /// As it lies.
    pub now: PathBuf,
    /// As it lay before, and another log: where stale and foreign files come from.
    pub others: [PathBuf; 2],
    /// Values by offset.
    pub values: Vec<Vec<u8>>,
    /// First offset.
    pub start: u64,
    /// Every offset below it was acknowledged and known to be durable.
    pub durable: u64,
}

impl Template {
    /// A fresh copy with one damage.
    pub fn copy_to(&self, work: &Path, dice: &mut Dice) -> Injury {
        let _ = fs::remove_dir_all(work);
        copy(&self.now, work);
        apply(work, &self.others, dice)
    }
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Appends one batch.
pub fn push(log: &mut Log, values: &mut Vec<Vec<u8>>, epoch: u64, codec: Codec) {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let at = values.len() as u64;
    for i in 0..=(at % 3) {
        let value = format!("record {} of incarnation {} ", at + i, epoch)
            .repeat((at as usize * 7 % 11) + 1);
        let record = RecordRef {
            timestamp: (1_000 + at + i) as i64,
            value: Some(value.as_bytes()),
            ..RecordRef::default()
        };
        builder.push(&record).unwrap();
        values.push(value.into_bytes());
    }
    let producer = at.is_multiple_of(5).then_some(Producer {
        id: 1 + at % 4,
        epoch: 0,
        base_sequence: at as u32,
    });
    let batch = builder.seal(codec, producer, None).unwrap();
    log.append(batch, epoch, at as i64).unwrap();
}

/// Appends, and does everything that waits: nothing happens to the files behind the caller's back.
pub fn append(
    (log, committer): (&mut Log, &GroupCommitter),
    values: &mut Vec<Vec<u8>>,
    count: usize,
    epoch: u64,
    codec: Codec,
) {
    for _ in 0..count {
        push(log, values, epoch, codec);
    }
    let (done, committed) = mpsc::channel();
    log.commit(Box::new(move |outcome| done.send(outcome.is_ok()).unwrap()));
    while committer.step() {}
    assert!(committed.try_recv().unwrap());
    log.set_high_watermark(u64::MAX);
}

/// Makes them under `root`.
pub fn templates(root: &Path) -> Vec<Template> {
    let _ = fs::remove_dir_all(root);
    let specs: [(&'static str, u64, Codec, bool, u64); 5] = [
        ("closed", 3_000, Codec::None, true, 0),
        ("crashed", 3_000, Codec::None, false, 0),
        ("trimmed", 2_000, Codec::Lz4, true, 60),
        ("one segment", 1 << 20, Codec::None, true, 0),
        ("one segment, crashed", 1 << 20, Codec::Zstd, false, 0),
    ];
    let other = root.join("other");
    make(root, &other, 5, ("other", 3_000, Codec::None, true, 0));
    let make_one = |(i, spec): (usize, _)| make(root, &other, 7 + i as u64, spec);
    specs.into_iter().enumerate().map(make_one).collect()
}

fn make(
    root: &Path,
    other: &Path,
    incarnation: u64,
    (name, segment_bytes, codec, close, keep): (&'static str, u64, Codec, bool, u64),
) -> Template {
    let identity = LogId {
        incarnation,
        partition: 0,
    };
    let options = LogOptions {
        durability: Durability::Disk,
        segment_bytes,
        preallocate_bytes: 4 << 10,
        ..LogOptions::default()
    };
    let committer = GroupCommitter::stepped(Arc::new(OsStorage));
    let live = root.join(format!("live-{incarnation}"));
    let mut log = Log::create(&live, identity, options.clone(), &committer).unwrap();
    let mut values = Vec::new();
    append((&mut log, &committer), &mut values, 30, 1, codec);
    log.close().unwrap();
    let before = root.join(format!("before-{incarnation}"));
    copy(&live, &before);
    let (mut log, _) = Log::open(&live, identity, options.clone(), &committer).unwrap();
    append((&mut log, &committer), &mut values, 15, 2, codec);
    if keep > 0 {
        let retention = Retention {
            messages: keep,
            ..Retention::default()
        };
        // The first call only rolls.
        log.maintain(&retention, 10).unwrap();
        log.maintain(&retention, 10).unwrap();
        while committer.step() {}
    }
    append((&mut log, &committer), &mut values, 15, 3, codec);
    let start = log.reader().log_start();
    let now = if incarnation == 5 {
        other.to_path_buf()
    } else {
        root.join(format!("now-{incarnation}"))
    };
    let durable = values.len() as u64;
    if close {
        log.close().unwrap();
        copy(&live, &now);
        return template(
            name,
            identity,
            options,
            now,
            [before, other.to_path_buf()],
            values,
            start,
            durable,
        );
    }
    // What lies there is what a kill leaves behind; the checkpoint knows of everything so far, and of nothing later.
    log.close().unwrap();
    let (mut log, _) = Log::open(&live, identity, options.clone(), &committer).unwrap();
    append((&mut log, &committer), &mut values, 8, 4, codec);
    copy(&live, &now);
    drop(log);
    template(
        name,
        identity,
        options,
        now,
        [before, other.to_path_buf()],
        values,
        start,
        durable,
    )
}

#[allow(clippy::too_many_arguments)] // one line for each field
fn template(
    name: &'static str,
    identity: LogId,
    options: LogOptions,
    now: PathBuf,
    others: [PathBuf; 2],
    values: Vec<Vec<u8>>,
    start: u64,
    durable: u64,
) -> Template {
    Template {
        name,
        identity,
        options,
        now,
        others,
        values,
        start,
        durable,
    }
}
