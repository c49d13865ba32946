//! A data directory, or one log of it, while no broker runs on it: verify, inspect, repair. Answers are JSON documents
//! (`specs/formats/seam.md`), because people and programs read them.
use bascule_wire::ErrorCode;
mod entries;
mod place;
mod report;

use crate::engine::created::{missing_partitions, was_created};
use crate::engine::error::EngineError;
use crate::metadata;
use bascule_log::integrity::{
    self, Action, Damage, Finding, RepairOptions, Verified, WalOnlyRange, WalVerified,
};
use bascule_log::{Error, OsStorage};
pub use entries::{Metadata, read_metadata};
use place::{LogPlace, Target};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A request to `repair`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RepairRequest {
    /// Only report the actions; change nothing.
    pub dry_run: bool,
    /// A backup of the same directory.
    pub from: Option<PathBuf>,
    /// Cut the log at this offset; only with the path of one log.
    pub cut_at: Option<u64>,
}

/// Reads and checks everything; changes nothing.
///
/// # Errors
/// `data_directory_locked` while a broker runs on it; `not_found` when there is nothing; `storage_failed`.
pub fn verify(path: &Path) -> Result<Value, EngineError> {
    let target = Target::open(path)?;
    let began = Instant::now();
    let journal = journal_of(&target)?;
    let (mut logs, mut lost) = (Vec::new(), Vec::new());
    for log in &target.logs {
        logs.push(
            match integrity::verify(&OsStorage, &log.directory, log.identity) {
                Ok(verified) => {
                    let wal_only = journal.as_ref().and_then(|(_, journal)| {
                        journal.of(log.identity, &log.directory, verified.log_end)
                    });
                    let wal_only = wal_only.unwrap_or_default();
                    lost.extend(wal_only.lost.iter().cloned());
                    verified_json(log, &verified, &wal_only, &target.root)
                }
                Err(Error::Absent { .. }) => absent_json(log, &target),
                Err(error) => return Err(failed(&error)),
            },
        );
    }
    // The metadata log comes first.
    let first = logs.first().filter(|log| log["incarnation"] == json!(1));
    let end = first.and_then(|log| log["log_end"].as_u64());
    let mut findings = directory_findings(&target, end.unwrap_or(0))?;
    if let Some((_, journal)) = &journal {
        let alone = target.logs.first().filter(|_| !target.is_data_directory);
        let of = alone.map(|log| log.identity);
        findings.extend(report::journal_findings(journal, of, &lost));
    }
    let sum = |name: &str| {
        logs.iter()
            .filter_map(|log| log[name].as_u64())
            .sum::<u64>()
    };
    let is_damaged = findings
        .iter()
        .any(|found| found["kind"] == json!("damage"))
        || logs.iter().any(|log| log["damaged"] == json!(true));
    Ok(json!({
        "path": target.root,
        "damaged": is_damaged,
        "segments": sum("segments"),
        "batches": sum("batches"),
        "records": sum("records"),
        "bytes": sum("bytes"),
        "seconds": began.elapsed().as_secs_f64(),
        "journal": journal.map(|(directory, journal)| report::journal(&directory, &journal)),
        "findings": findings,
        "logs": logs,
    }))
}

/// The journal with its directory; `None` where there is none.
fn journal_of(target: &Target) -> Result<Option<(PathBuf, WalVerified)>, EngineError> {
    let Some((directory, partitions)) = target.wal() else {
        return Ok(None);
    };
    let verified = integrity::verify_wal(&OsStorage, &directory, &partitions);
    Ok(Some((directory, verified.map_err(|error| failed(&error))?)))
}

/// Faults of a data directory other than those of its logs: the manifest, snapshots, metadata that ends at entry `end` and is
/// older than the data, missing partitions. Empty for a single log.
fn directory_findings(target: &Target, end: u64) -> Result<Vec<Value>, EngineError> {
    if !target.is_data_directory {
        return Ok(Vec::new());
    }
    let mut findings = Vec::from_iter(target.check_manifest());
    for path in metadata::damaged_snapshots(&target.root) {
        let what = "the snapshot fails its checksum; the one before it is used, if there is one";
        findings.push(report::file(&path, what));
    }
    let behind = metadata::behind_partitions(&target.root, end);
    findings.extend(behind.map(|what| report::file(&target.root.join("metadata"), &what)));
    let missing = missing_partitions(&target.root).map_err(|error| unreadable(target, &error))?;
    findings.extend(
        missing
            .iter()
            .map(|directory| report::missing_partition(directory, &target.root)),
    );
    Ok(findings)
}

fn unreadable(target: &Target, error: &std::io::Error) -> EngineError {
    let text = format!("{} cannot be read: {error}", target.root.display());
    EngineError::new(ErrorCode::StorageFailed, text)
}

/// The content of the logs. Batches are listed only for a single log: at most `most` of those that end after offset `from`.
///
/// # Errors
/// As [`verify`].
pub fn inspect(path: &Path, from: u64, most: usize) -> Result<Value, EngineError> {
    let target = Target::open(path)?;
    let journal = journal_of(&target)?;
    let most = if target.is_data_directory { 0 } else { most };
    let mut logs = Vec::new();
    for log in &target.logs {
        let view = integrity::inspect(&OsStorage, &log.directory, log.identity, from, most)
            .map_err(|error| failed(&error))?;
        let wal_only = journal
            .as_ref()
            .and_then(|(_, journal)| journal.of(log.identity, &log.directory, view.end()));
        logs.push(report::log_view(log, &view, wal_only.as_ref()));
    }
    Ok(json!({"path": target.root, "logs": logs}))
}

/// Repairs logs as far as possible. Files are moved aside, never destroyed.
///
/// # Errors
/// As [`verify`]; `invalid_argument` for a cut of more than one log or in the middle of a batch.
pub fn repair(path: &Path, request: &RepairRequest, now_ns: i64) -> Result<Value, EngineError> {
    let target = Target::open(path)?;
    if request.cut_at.is_some() && target.is_data_directory {
        let text = "a cut concerns one log: name its directory, <data>/partitions/<incarnation>";
        return Err(EngineError::new(ErrorCode::InvalidArgument, text));
    }
    if let Some(backup) = &request.from {
        refuse_older_metadata(&target, backup)?;
    }
    let (mut logs, mut end) = (Vec::new(), 0);
    for log in &target.logs {
        let from = request
            .from
            .as_ref()
            .map(|backup| target.in_backup(log, backup));
        let options = RepairOptions {
            dry_run: request.dry_run,
            from,
            cut_at: request.cut_at,
            wal: log.wal(),
            now_ns,
        };
        match integrity::repair(&OsStorage, &log.directory, log.identity, &options) {
            Ok((actions, left)) => {
                if log.is_metadata() {
                    end = left.log_end;
                }
                let findings = findings_json(&left.findings, &target.root, request.from.is_some());
                logs.push(repaired_json(log, &actions, &left, &findings));
            }
            Err(Error::Absent { .. }) => logs.push(absent_json(log, &target)),
            Err(error) => return Err(failed(&error)),
        }
    }
    let findings = directory_findings(&target, end)?;
    let is_damaged = !findings.is_empty() || logs.iter().any(|log| log["damaged"] == json!(true));
    Ok(json!({
        "path": target.root,
        "dry_run": request.dry_run,
        "damaged": is_damaged,
        "findings": findings,
        "logs": logs,
    }))
}

/// Metadata from a backup would undo later commits. So if the metadata log needs repair, a backup is refused with which the log
/// would end before the newest entry that this directory proves.
fn refuse_older_metadata(target: &Target, backup: &Path) -> Result<(), EngineError> {
    let Some(log) = target.logs.iter().find(|log| log.is_metadata()) else {
        return Ok(());
    };
    let end_of = |directory: &Path| match integrity::verify(&OsStorage, directory, log.identity) {
        Ok(verified) => Ok(Some(verified)),
        Err(Error::Absent { .. }) => Ok(None),
        Err(error) => Err(failed(&error)),
    };
    let ours = end_of(&log.directory)?;
    if ours.as_ref().is_some_and(|ours| !ours.is_damaged()) {
        return Ok(());
    }
    let copy = target.in_backup(log, backup);
    let theirs = if copy.is_dir() { end_of(&copy)? } else { None };
    let Some(theirs) = theirs else {
        return Ok(());
    };
    let (entry, evidence) = metadata::newest_known(&target.root_of_data());
    // Newer data here stays: only whole segments come from the backup.
    let end = ours.map_or(0, |ours| ours.log_end).max(theirs.log_end);
    if end >= entry {
        return Ok(());
    }
    let text = format!(
        "the metadata in {} ends at entry {}, but {} shows that entry {entry} was committed: a newer metadata state \
         exists. Nothing was touched. Name a backup that is at least as new, or repair single partitions by their directory",
        backup.display(),
        theirs.log_end,
        evidence.display()
    );
    Err(EngineError::new(ErrorCode::FailedPrecondition, text))
}

fn failed(error: &Error) -> EngineError {
    let code = match error {
        Error::NotABoundary { .. } => ErrorCode::InvalidArgument,
        _ => ErrorCode::StorageFailed,
    };
    EngineError::new(code, error.to_string())
}

fn verified_json(
    log: &LogPlace,
    verified: &Verified,
    wal_only: &WalOnlyRange,
    root: &Path,
) -> Value {
    let mut findings = findings_json(&verified.findings, root, false);
    findings.extend(wal_only.lost.iter().map(report::lost_in_journal));
    json!({
        "directory": log.directory,
        "incarnation": log.identity.incarnation,
        "partition": log.identity.partition,
        "damaged": verified.is_damaged() || !wal_only.lost.is_empty(),
        "segments": verified.segments,
        "batches": verified.batches,
        "records": verified.records,
        "bytes": verified.bytes,
        "log_start": verified.log_start,
        "log_end": verified.log_end,
        "log_end_with_journal": wal_only.end.max(verified.log_end),
        "durable": verified.durable,
        "findings": findings,
    })
}

fn findings_json(findings: &[Finding], root: &Path, has_tried: bool) -> Vec<Value> {
    findings
        .iter()
        .map(|found| report::finding(found, root, has_tried))
        .collect()
}

fn absent_json(log: &LogPlace, target: &Target) -> Value {
    // Files that were made and are not there are lost; a directory that was never finished is not.
    let created = was_created(&target.root_of_data(), log.identity.incarnation);
    let lost = created.unwrap_or(true) && !log.is_metadata();
    let findings = Vec::from_iter(
        lost.then(|| report::missing_partition(&log.directory, &target.root_of_data())),
    );
    json!({
        "directory": log.directory,
        "incarnation": log.identity.incarnation,
        "partition": log.identity.partition,
        "damaged": lost,
        "findings": findings,
    })
}

fn repaired_json(log: &LogPlace, actions: &[Action], left: &Verified, findings: &[Value]) -> Value {
    let action = |action: &Action| json!({"what": action.what, "path": action.path, "detail": action.detail});
    json!({
        "directory": log.directory,
        "incarnation": log.identity.incarnation,
        "partition": log.identity.partition,
        "actions": actions.iter().map(action).collect::<Vec<_>>(),
        "damaged": left.is_damaged(),
        "findings": findings,
    })
}

pub(crate) use report::journal_damage;

/// A damaged range as JSON; the same form everywhere.
pub(crate) fn damage_json(damage: &Damage) -> Value {
    json!({
        "start": damage.start,
        "end": damage.end,
        "fault": damage.fault.name(),
        "path": damage.path,
        "position": damage.position,
    })
}
