//! Findings and views as JSON, with what they mean and what to do next.
use super::damage_json;
use super::place::LogPlace;
use bascule_log::damage::{BatchView, Finding, FindingKind, LogView, SegmentView};
use serde_json::{Value, json};
use std::path::Path;

/// One finding of a log.
pub(super) fn finding(found: &Finding, root: &Path) -> Value {
    let (start, end) = found.offsets;
    let root = root.display();
    let (effect, next) = match found.kind {
        FindingKind::Damage => (
            format!(
                "offsets [{start}, {end}) are lost here: readers are refused them, all others are served"
            ),
            format!("bascule log repair {root} --from BACKUP"),
        ),
        FindingKind::Foreign => (
            "the partition may not open until it is gone".to_owned(),
            format!("bascule log repair {root} --from BACKUP"),
        ),
        FindingKind::Derived => (
            "no record is lost: it is made anew from the segments at the next start".to_owned(),
            String::new(),
        ),
        _ => ("no acknowledged record is lost".to_owned(), String::new()),
    };
    json!({
        "kind": found.kind.name(),
        "path": found.path,
        "position": found.position,
        "start": start,
        "end": end,
        "what": found.what,
        "effect": effect,
        "next": next,
    })
}

/// A file of the data directory that is no log.
pub(super) fn file(path: &Path, what: &str) -> Value {
    json!({
        "kind": "damage",
        "path": path,
        "position": 0,
        "start": 0,
        "end": 0,
        "what": what,
        "effect": "the broker does not start; no data is touched",
        "next": format!("restore {} from a backup", path.display()),
    })
}

/// A partition whose files were made here and are not there.
pub(super) fn missing_partition(directory: &Path, root: &Path) -> Value {
    json!({
        "kind": "damage",
        "path": directory,
        "position": 0,
        "start": 0,
        "end": 0,
        "what": "the partition was made here and its files are gone",
        "effect": "all its records are lost here: the partition does not open, all others are served",
        "next": format!(
            "restore {} from a backup of {}, or delete the stream",
            directory.display(),
            root.display()
        ),
    })
}

/// A log with its segments and batches.
pub(super) fn log_view(log: &LogPlace, view: &LogView) -> Value {
    let checkpoint = view.checkpoint.map(|(high_watermark, log_start, durable, clean)| {
        json!({"high_watermark": high_watermark, "log_start": log_start, "durable": durable, "clean": clean})
    });
    let epochs = view
        .epochs
        .iter()
        .map(|(epoch, start)| json!({"epoch": epoch, "start": start}));
    json!({
        "directory": log.directory,
        "incarnation": log.identity.incarnation,
        "partition": log.identity.partition,
        "checkpoint": checkpoint,
        "epochs": epochs.collect::<Vec<_>>(),
        "producers": view.producers.map(|(known, to)| json!({"known": known, "below": to})),
        "scrubbed_ns": view.scrubbed,
        "quarantine": view.quarantine.iter().map(damage_json).collect::<Vec<_>>(),
        "segments": view.segments.iter().map(segment).collect::<Vec<_>>(),
        "batches": view.batches.iter().map(batch).collect::<Vec<_>>(),
    })
}

fn segment(view: &SegmentView) -> Value {
    json!({
        "file": view.path.file_name().map(|name| name.to_string_lossy()),
        "base_offset": view.base_offset,
        "next_offset": view.next_offset,
        "bytes": view.bytes,
        "end": view.end,
        "batches": view.batches,
        "records": view.records,
        "first_timestamp": view.timestamps.map(|(first, _)| first),
        "last_timestamp": view.timestamps.map(|(_, last)| last),
        "preamble": view.has_preamble,
        "index": view.has_index,
        "damages": view.damages.iter().map(damage_json).collect::<Vec<_>>(),
    })
}

fn batch(view: &BatchView) -> Value {
    let header = &view.header;
    json!({
        "base_offset": header.base_offset,
        "next_offset": header.next_offset(),
        "records": header.count,
        "position": view.position,
        "bytes": header.batch_bytes(),
        "raw_bytes": header.raw_bytes,
        "codec": format!("{:?}", header.codec).to_lowercase(),
        "flags": header.flags.0,
        "leader_epoch": header.leader_epoch,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer": header.producer.map(|producer| producer.id),
        "base_sequence": header.producer.map(|producer| producer.base_sequence),
        "key_id": header.key_id,
        "link": header.link(),
        "chain": header.chain,
    })
}
