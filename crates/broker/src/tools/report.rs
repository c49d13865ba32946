//! Findings and views as JSON, with what they mean and what to do next.
use super::damage_json;
use super::place::LogPlace;
use bascule_log::integrity::{
    BatchView, Damage, Finding, FindingKind, LogView, SegmentView, WalOnlyRange, WalVerified,
};
use bascule_log::{LogId, WalDamage, WalFault};
use serde_json::{Value, json};
use std::path::Path;

/// One finding of a log. `has_tried`: a repair has restored everything that the backup has.
pub(super) fn finding(found: &Finding, root: &Path, has_tried: bool) -> Value {
    let (start, end) = found.offsets;
    let is_foreign = found.kind == FindingKind::Foreign;
    let next = if has_tried && is_foreign {
        format!(
            "start the version that wrote {path}, or, if it is another log's, move it out of the directory",
            path = found.path.display()
        )
    } else if has_tried {
        "repair --from another backup that has the whole segment and a later one after it, or continue without these \
         offsets"
            .to_owned()
    } else {
        format!("bascule log repair {} --from BACKUP", root.display())
    };
    let (effect, next) = match found.kind {
        FindingKind::Damage => (
            format!(
                "offsets [{start}, {end}) are lost here: reads of them are refused, all others are served"
            ),
            next,
        ),
        FindingKind::Foreign => (
            "the partition may not open until the file is removed".to_owned(),
            next,
        ),
        FindingKind::Derived => (
            "no record is lost: the next start rebuilds the file from the segments".to_owned(),
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

/// A file of the data directory outside the logs.
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

/// A partition that was created here and has no files.
pub(super) fn missing_partition(directory: &Path, root: &Path) -> Value {
    json!({
        "kind": "damage",
        "path": directory,
        "position": 0,
        "start": 0,
        "end": 0,
        "what": "the partition was created here and its files are missing",
        "effect": "all its records are lost here: the partition does not open, all others are served",
        "next": format!(
            "restore {} from a backup of {}, or delete the stream",
            directory.display(),
            root.display()
        ),
    })
}

/// A whole file of the journal is lost.
const FILE_LOST: &str = "a file of the journal is missing, empty or an older copy";

/// The preamble of a file and its copy are lost.
const FILE_UNREAD: &str = "no frame of the file can be read";

/// The effect of lost frames whose records are not known.
const ENDS_LOST: &str =
    "acknowledged records that no segment has may be missing at the end of partitions";

/// The remedy for lost ends of partitions.
const COMPARE: &str = "compare the ends of partitions with the acks of publishers";

/// The remedy while the broker is stopped.
const RESTORE: &str = "compare the ends of partitions with the acks of publishers, or restore the whole data directory from a \
                       backup that was taken while the broker was stopped";

/// The effect of a damaged manifest.
const HEAD_LOST: &str =
    "no record is lost, but missing files of the journal cannot be detected now";

/// The effect of a damaged end marker.
const MARKS_LOST: &str =
    "no record is lost: the last frames of the file are known to be complete without it";

/// Both end markers are damaged.
const END_UNKNOWN: &str =
    "the end markers of the file, which record how far its frames reach, fail their checksums";

/// A damage of the journal as a sentence.
pub(crate) fn journal_damage(damage: &WalDamage) -> String {
    let path = damage.path.display();
    match damage.fault {
        WalFault::Lost => {
            format!("in {path} {FILE_LOST}: {ENDS_LOST}: {COMPARE}")
        }
        WalFault::Manifest => {
            format!(
                "the manifest of the journal, {path}, is missing or fails its checksum: {HEAD_LOST}; it is written again"
            )
        }
        _ => damage_in_file(damage),
    }
}

fn damage_in_file(damage: &WalDamage) -> String {
    let held = match damage.of {
        Some((log, start, end)) => {
            format!(
                "offsets [{start}, {end}) of incarnation {}",
                log.incarnation
            )
        }
        None if !damage.fault.can_cost() => "no records".to_owned(),
        None => "records that are not known".to_owned(),
    };
    let meaning = match (damage.fault, damage.was_acked, damage.of) {
        (WalFault::Preamble, ..) => {
            "its copy at the end of the file is used, and no record is lost"
        }
        (WalFault::EndMarkers, ..) => MARKS_LOST,
        (WalFault::File, ..) => &format!("{FILE_UNREAD}: {ENDS_LOST}: {COMPARE}"),
        (WalFault::End, ..) => &format!("{END_UNKNOWN}: {ENDS_LOST}: {COMPARE}"),
        (_, true, None) => {
            "it was acknowledged: reads of records that no segment has are refused, and each partition reports them when it is \
             opened; a partition without later records in the journal ends before them"
        }
        (_, true, Some(_)) => {
            "it was acknowledged: reads of records that no segment has are refused, and each partition reports them when it is opened"
        }
        (_, false, _) => &format!(
            "either it was being written when the broker ended, and none of it was acknowledged, or it is damaged, and \
             acknowledged records may be missing at the end of a partition: {COMPARE}"
        ),
    };
    format!(
        "the journal fails its checksum at position {} of {}, which held {held}; {meaning}. The file is kept as `damaged` in \
         its directory once all partitions have replayed it, until another file is damaged",
        damage.position,
        damage.path.display()
    )
}

/// Offsets lost by damage of the journal.
pub(super) fn lost_in_journal(damage: &Damage) -> Value {
    let (start, end) = (damage.start, damage.end);
    json!({
        "kind": "damage",
        "path": damage.path,
        "position": damage.position,
        "start": start,
        "end": end,
        "what": damage.fault.to_string(),
        "effect": format!(
            "offsets [{start}, {end}) were only in the journal and are lost here: reads of them are refused, all others are served"
        ),
        "next": "restore the data directory from a backup that has them, or continue without them",
    })
}

/// Damage of the journal: all of it, or only what may concern one log. `lost`: the lost offsets of the logs.
pub(super) fn journal_findings(
    journal: &WalVerified,
    of: Option<LogId>,
    lost: &[Damage],
) -> Vec<Value> {
    let concerns = |damage: &&WalDamage| {
        let log = damage.of.map(|(log, ..)| log);
        of.is_none() || log.is_none() || log == of
    };
    let found = journal.damages.iter().filter(concerns);
    found.map(|damage| journal_finding(damage, lost)).collect()
}

fn journal_finding(damage: &WalDamage, lost: &[Damage]) -> Value {
    let costs = |lost: &Damage| lost.path == damage.path && lost.position == damage.position;
    let (kind, effect) = match (damage.was_acked, damage.of) {
        _ if damage.fault == WalFault::Preamble => (
            "derived",
            "no record is lost: its copy at the end of the file is used",
        ),
        _ if damage.fault == WalFault::File => ("damage", &*format!("{FILE_UNREAD}: {ENDS_LOST}")),
        _ if damage.fault == WalFault::End => ("damage", &*format!("{END_UNKNOWN}: {ENDS_LOST}")),
        _ if damage.fault == WalFault::Lost => ("damage", ENDS_LOST),
        _ if damage.fault == WalFault::Manifest => ("derived", HEAD_LOST),
        _ if damage.fault == WalFault::EndMarkers => ("derived", MARKS_LOST),
        (false, _) => (
            "tail",
            "no acknowledged record is lost if it was being written when the broker ended; otherwise some may be missing at \
             the end of a partition",
        ),
        (true, Some(_)) if !lost.iter().any(costs) => (
            "derived",
            "no record is lost: the segments have its records",
        ),
        (true, _) => ("damage", "its records that no segment has are lost here"),
    };
    let (start, end) = damage.of.map_or((0, 0), |(_, start, end)| (start, end));
    let what = match damage.of {
        Some((log, ..)) => format!(
            "a frame of incarnation {} fails its checksum",
            log.incarnation
        ),
        None if damage.fault == WalFault::Lost => FILE_LOST.to_owned(),
        None if damage.fault == WalFault::Manifest => {
            "the manifest of the journal is missing or fails its checksum".to_owned()
        }
        None if damage.fault == WalFault::EndMarkers => {
            "an end marker of a journal file fails its checksum".to_owned()
        }
        None if damage.fault == WalFault::End => {
            "how far a journal file reached is not known".to_owned()
        }
        None if damage.position == 0 => {
            "the beginning of a journal file fails its checksum".to_owned()
        }
        None => "a frame fails its checksum".to_owned(),
    };
    json!({
        "kind": kind,
        "path": damage.path,
        "position": damage.position,
        "start": start,
        "end": end,
        "what": what,
        "effect": effect,
        "next": if damage.is_loss() && kind == "damage" { RESTORE } else { "" },
    })
}

/// Size of the journal that was read.
pub(super) fn journal(directory: &Path, journal: &WalVerified) -> Value {
    json!({
        "path": directory,
        "files": journal.files,
        "frames": journal.frames,
        "bytes": journal.bytes,
    })
}

/// A log with its segments and batches, and its records that only the journal has.
pub(super) fn log_view(log: &LogPlace, view: &LogView, wal_only: Option<&WalOnlyRange>) -> Value {
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
        "journal": wal_only.map(wal_only_json),
        "segments": view.segments.iter().map(segment).collect::<Vec<_>>(),
        "batches": view.batches.iter().map(batch).collect::<Vec<_>>(),
    })
}

fn wal_only_json(wal_only: &WalOnlyRange) -> Value {
    let frame = |(start, end): &(u64, u64)| json!({"start": start, "end": end});
    json!({
        "end": wal_only.end,
        "frames": wal_only.frames.iter().map(frame).collect::<Vec<_>>(),
        "lost": wal_only.lost.iter().map(damage_json).collect::<Vec<_>>(),
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
