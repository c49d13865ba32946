//! Findings and views as JSON, with what they mean and what to do next.
use super::damage_json;
use super::place::LogPlace;
use bascule_log::integrity::{
    BatchView, Damage, Finding, FindingKind, LogView, SegmentView, WalOnlyRange, WalVerified,
};
use bascule_log::{Identity, WalDamage, WalFault};
use serde_json::{Value, json};
use std::path::Path;

/// One finding of a log. `has_tried`: what a backup has of it was put back.
pub(super) fn finding(found: &Finding, root: &Path, has_tried: bool) -> Value {
    let (start, end) = found.offsets;
    let is_foreign = found.kind == FindingKind::Foreign;
    let next = if has_tried && is_foreign {
        format!(
            "start the version that wrote {path}, or, if it is another log's, move it out of the directory",
            path = found.path.display()
        )
    } else if has_tried {
        "repair --from another backup, one that has the whole segment and a later one behind it, or go on without these \
         offsets"
            .to_owned()
    } else {
        format!("bascule log repair {} --from BACKUP", root.display())
    };
    let (effect, next) = match found.kind {
        FindingKind::Damage => (
            format!(
                "offsets [{start}, {end}) are lost here: readers are refused them, all others are served"
            ),
            next,
        ),
        FindingKind::Foreign => (
            "the partition may not open until it is gone".to_owned(),
            next,
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

/// What is wrong where a whole file of the journal is lost.
const FILE_LOST: &str =
    "a file of the journal is gone, emptied, an older one or of another data directory";

/// Where its beginning and the copy of it are lost.
const FILE_UNREAD: &str = "nothing of the file can be read";

/// What it may cost when frames are lost that nobody can name.
const ENDS_LOST: &str =
    "acknowledged records that no segment has may be missing at the end of partitions";

/// What can be done about lost ends of partitions.
const TOLD: &str = "compare with what publishers were told";

/// The same for somebody who looks at a broker that has ended.
const COMPARE: &str = "compare the ends of partitions with what publishers were told, or restore the whole data directory from \
                       a backup that was taken when the broker had ended";

/// What a head of the journal costs that does not check.
const HEAD_LOST: &str =
    "no record is lost by it, but nobody can tell now whether a file of the journal is missing";

/// What a mark of a journal's file costs that does not check.
const MARKS_LOST: &str =
    "no record is lost by it: that the last frames of the file are there is known without it";

/// What nobody can tell when both marks do not check.
const END_UNKNOWN: &str =
    "the marks at the end of the file, which say how far its frames reach, do not check";

/// What a journal's damage is, in a sentence.
pub(crate) fn journal_damage(damage: &WalDamage) -> String {
    let path = damage.path.display();
    match damage.fault {
        WalFault::Lost => {
            format!("in {path} {FILE_LOST}: {ENDS_LOST}: {TOLD}")
        }
        WalFault::Manifest => {
            format!(
                "the head of the journal, {path}, does not check or is missing: {HEAD_LOST}; it is written anew"
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
        None => "what nobody can tell any more".to_owned(),
    };
    let meaning = match (damage.fault, damage.was_acked, damage.of) {
        (WalFault::Preamble, ..) => {
            "its copy at the end of the file is used, and nothing is lost by it"
        }
        (WalFault::EndMarkers, ..) => MARKS_LOST,
        (WalFault::File, ..) => &format!("{FILE_UNREAD}: {ENDS_LOST}: {TOLD}"),
        (WalFault::End, ..) => &format!("{END_UNKNOWN}: {ENDS_LOST}: {TOLD}"),
        (_, true, None) => {
            "it was acknowledged: what no segment has either is refused to readers, and told by partition when that is opened, \
             but for a partition of which nothing lies behind it: that ends before it"
        }
        (_, true, Some(_)) => {
            "it was acknowledged: what no segment has either is refused to readers, and told by partition when that is opened"
        }
        (_, false, _) => &format!(
            "it was being written when the broker ended, and then nothing of it was acknowledged, or it is damaged, and \
             then acknowledged records may be missing at the end of a partition: {TOLD}"
        ),
    };
    format!(
        "the journal does not check at position {} of {}, which held {held}; {meaning}. The file is kept as `damaged` beside \
         it once no partition has anything to take over from it, until another one is damaged",
        damage.position,
        damage.path.display()
    )
}

/// Offsets that a damaged journal lost.
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
            "offsets [{start}, {end}) lay in the journal alone and are lost here: readers are refused them, all others are served"
        ),
        "next": "restore the data directory from a backup that has them, or go on without them",
    })
}

/// What of a journal does not check: all of it, or what may concern one log. `lost`: what that costs the logs.
pub(super) fn journal_findings(
    journal: &WalVerified,
    of: Option<Identity>,
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
            "no acknowledged record is lost if it was being written when the broker ended; if not, some may be missing at \
             the end of a partition",
        ),
        (true, Some(_)) if !lost.iter().any(costs) => (
            "derived",
            "no record is lost: the segments have what it held",
        ),
        (true, _) => ("damage", "what it held and no segment has is lost here"),
    };
    let (start, end) = damage.of.map_or((0, 0), |(_, start, end)| (start, end));
    let what = match damage.of {
        Some((log, ..)) => format!("a frame of incarnation {} does not check", log.incarnation),
        None if damage.fault == WalFault::Lost => FILE_LOST.to_owned(),
        None if damage.fault == WalFault::Manifest => {
            "the head of the journal does not check or is missing".to_owned()
        }
        None if damage.fault == WalFault::EndMarkers => {
            "a mark at the end of a journal file does not check".to_owned()
        }
        None if damage.fault == WalFault::End => {
            "nobody can tell how far a journal file reached".to_owned()
        }
        None if damage.position == 0 => "the beginning of a journal file does not check".to_owned(),
        None => "a frame does not check".to_owned(),
    };
    json!({
        "kind": kind,
        "path": damage.path,
        "position": damage.position,
        "start": start,
        "end": end,
        "what": what,
        "effect": effect,
        "next": if damage.is_loss() && kind == "damage" { COMPARE } else { "" },
    })
}

/// How much of a journal was read.
pub(super) fn journal(directory: &Path, journal: &WalVerified) -> Value {
    json!({
        "path": directory,
        "files": journal.files,
        "frames": journal.frames,
        "bytes": journal.bytes,
    })
}

/// A log with its segments and batches, and what of it hangs on the journal.
pub(super) fn log_view(log: &LogPlace, view: &LogView, hanging: Option<&WalOnlyRange>) -> Value {
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
        "journal": hanging.map(hanging_json),
        "segments": view.segments.iter().map(segment).collect::<Vec<_>>(),
        "batches": view.batches.iter().map(batch).collect::<Vec<_>>(),
    })
}

fn hanging_json(hanging: &WalOnlyRange) -> Value {
    let frame = |(start, end): &(u64, u64)| json!({"start": start, "end": end});
    json!({
        "end": hanging.end,
        "frames": hanging.frames.iter().map(frame).collect::<Vec<_>>(),
        "lost": hanging.lost.iter().map(damage_json).collect::<Vec<_>>(),
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
