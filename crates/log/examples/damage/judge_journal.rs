//! The verdict on a data directory with damage in a file of the journal, or in bytes of a segment that were not synced.
//!
//! Every acknowledged record has to be served or refused, and only records of damaged frames may be refused. If no frame after
//! a damaged one names the log, less can be known ([`Limit`]): then the log may end before it, and nothing else is excused.
use crate::Dice;
use crate::frames::{self, Left};
use crate::journal::{Harm, Home, Run};
use crate::judge::{Seen, check, read};
use crate::power::{self, Cut, Power};
use crate::prepare::Template;
use bascule_log::integrity::{WalOnlyRange, WalVerified, verify, verify_wal};
use bascule_log::{GroupCommitter, Log, OsStorage, Storage};
use bascule_record::Codec;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Fault = (&'static str, String);

/// Losses that a journal cannot prove, by its format page and the page on repairs. All but the last have to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Something is left of the last frames of a log, but not their log, or not that they were acknowledged.
    Reported,
    /// Nothing is left of the last frames of an earlier file, and later files have none of the log: the log is unknown.
    EndOfFile,
    /// Nothing is left of a whole file: its logs are unknown.
    WholeFile,
    /// The whole last file, with its end markers, is as it was after an earlier round: as if the later ones were never written.
    LastRounds,
}

/// The duty of one log.
struct Due {
    /// Everything below has to be served or refused, and is not used again.
    sure: u64,
    /// Why it is less than was acknowledged.
    limit: Option<Limit>,
    /// Offsets that may be refused.
    hit: Vec<(u64, u64)>,
}

/// Output of the offline tools.
struct Offline {
    journal: Option<WalVerified>,
    /// Ranges that are lost, of each log.
    lost: Vec<Vec<(u64, u64)>>,
    any: bool,
}

/// Reports of the run.
struct Reports {
    /// Any report, of any part.
    any: bool,
    /// A report of the journal.
    of_journal: bool,
    /// A log ends before its last acknowledged record.
    is_short: bool,
}

/// The verdict, as of a single log, or `earlier`: a loss is not reported, and everything synced is, byte for byte, as it was at
/// an earlier moment. And the limit.
pub fn judge(
    home: &Home,
    work: &Path,
    harm: &Harm,
    dice: &mut Dice,
) -> (&'static str, String, Option<Limit>) {
    let dues = dues(home, work, harm);
    let limit = dues.iter().filter_map(|due| due.limit).max();
    let may_be_silent = limit == Some(Limit::LastRounds) && home.is_as_earlier(work);
    let (verdict, detail) = match run_twice(home, work, &dues, dice) {
        Ok(reports) if reports.is_short && !reports.of_journal && may_be_silent => {
            ("earlier", String::new())
        }
        Ok(reports) if reports.is_short && !reports.of_journal => {
            ("silent", format!("a log is short, for {limit:?}"))
        }
        Ok(reports) if reports.any => ("detected", String::new()),
        Ok(_) => ("harmless", String::new()),
        Err(fault) => fault,
    };
    (verdict, detail, limit)
}

/// The duty of each log after the damage.
fn dues(home: &Home, work: &Path, harm: &Harm) -> Vec<Due> {
    let left = frames::left(&home.journal, &work.join("journal"));
    let due = |(log, synced): (&Template, &u64)| {
        // The segments hold everything, or the journal what one of them lost.
        if harm.cut.is_none() {
            return Due {
                sure: log.durable,
                limit: None,
                hit: Vec::new(),
            };
        }
        due_after(home, &left, log, *synced)
    };
    home.logs
        .iter()
        .zip(&home.segment_synced)
        .map(due)
        .collect()
}

/// The duty of a log whose segments may end at `synced`.
fn due_after(home: &Home, left: &[Vec<Left>], log: &Template, synced: u64) -> Due {
    let mut due = Due {
        sure: synced,
        limit: None,
        hit: Vec::new(),
    };
    let mut gone = Vec::new();
    for (i, (file, left)) in home.journal.iter().zip(left).enumerate() {
        let unseen = if left.iter().all(|left| !left.whole && !left.is_noticed) {
            Limit::WholeFile
        } else if i + 1 < home.journal.len() {
            Limit::EndOfFile
        } else {
            Limit::LastRounds
        };
        let both = file.frames.iter().zip(left);
        for (frame, left) in both.filter(|(frame, _)| frame.incarnation == log.identity.incarnation)
        {
            let known = match left {
                Left { whole: true, .. } => frame.end,
                Left { named_to: 0, .. } => 0,
                Left {
                    is_vouched: true, ..
                } => left.named_to,
                // A round begins when the one before it was synced.
                _ => frame.start,
            };
            due.sure = due.sure.max(known);
            if !left.whole {
                due.hit.push((frame.start, frame.end));
                gone.push((
                    frame.end,
                    if left.is_noticed {
                        Limit::Reported
                    } else {
                        unseen
                    },
                ));
            }
        }
    }
    let limits = gone.into_iter().filter(|(end, _)| *end > due.sure);
    // One report covers all of it.
    due.limit = limits.map(|(_, limit)| limit).min();
    due
}

/// Two lives on the directory, and what was reports.
fn run_twice(home: &Home, work: &Path, dues: &[Due], dice: &mut Dice) -> Result<Reports, Fault> {
    let offline = check_offline(home, work);
    let power = Power::over(work);
    // Refusing to start is an answer: nothing is served, nothing was touched.
    let Ok(mut run) = begin(home, work, Arc::new(power.clone())) else {
        return if offline.any {
            Ok(Reports {
                any: true,
                of_journal: true,
                is_short: false,
            })
        } else {
            silent("it does not start")
        };
    };
    let first = read_all(&run);
    let damages = run.committer.wal_damages();
    let of_journal = damages.iter().any(|damage| damage.fault.can_cost());
    let mut any = offline.any || of_journal;
    check_reports(&offline, &run, dues)?;
    let (mut values, mut is_short) = (Vec::new(), false);
    for (i, (due, seen)) in dues.iter().zip(&first).enumerate() {
        let (log, reader) = (&home.logs[i], run.logs[i].reader());
        prefixed(i, check((0, due.sure), seen, &reader, &log.values))?;
        prefixed(i, too_wide(due, seen))?;
        prefixed(i, unforeseen(seen, &offline.lost[i]))?;
        any |= !seen.refused.is_empty();
        is_short |= reader.log_end() < log.durable;
        let end = reader.log_end() as usize;
        let mut known = log.values.clone();
        known.resize(end, Vec::new());
        values.push(known);
    }
    // The logs continue: new records get new offsets, and the next start finds the same.
    for counts in [[1, 2, 1], [2, 1, 1], [1, 0, 1]] {
        run.round(&counts, &mut values, 9, Codec::None);
    }
    end(run, work, &power, dice);
    let Ok(run) = begin(home, work, Arc::new(OsStorage)) else {
        return silent("it does not start a second time");
    };
    // All logs have replayed: losses were reported by then.
    let damages = run.committer.wal_damages();
    if damages.iter().any(|damage| damage.was_acked) {
        return Err(("alarm", format!("the second start reports {damages:?}")));
    }
    let second = read_all(&run);
    for (i, (due, seen)) in dues.iter().zip(&second).enumerate() {
        let reader = run.logs[i].reader();
        prefixed(
            i,
            check((0, values[i].len() as u64), seen, &reader, &values[i]),
        )?;
        prefixed(i, too_wide(due, seen))?;
        let lost = |(offset, _): &&(u64, Vec<u8>)| !seen.served.iter().any(|(at, _)| at == offset);
        if let Some((offset, _)) = first[i].served.iter().find(lost) {
            return silent(&format!("log {i}: the second run lost offset {offset}"));
        }
    }
    Ok(Reports {
        any,
        of_journal,
        is_short,
    })
}

fn silent<T>(what: &str) -> Result<T, Fault> {
    Err(("silent", what.to_owned()))
}

fn prefixed(log: usize, fault: Option<Fault>) -> Result<(), Fault> {
    fault.map_or(Ok(()), |(kind, detail)| {
        Err((kind, format!("log {log}: {detail}")))
    })
}

fn directory(work: &Path, log: &Template) -> PathBuf {
    let name = log.identity.incarnation.to_string();
    work.join("partitions").join(name)
}

fn begin(home: &Home, work: &Path, storage: Arc<dyn Storage>) -> Result<Run, bascule_log::Error> {
    let committer = GroupCommitter::stepped_with_wal(storage, home.options(work))?;
    let open = |log: &Template| {
        let at = directory(work, log);
        let (opened, _) = Log::open(&at, log.identity, log.options.clone(), &committer)?;
        opened.set_high_watermark(u64::MAX);
        Ok(opened)
    };
    let logs = home.logs.iter().map(open).collect::<Result<_, _>>()?;
    Ok(Run { committer, logs })
}

fn read_all(run: &Run) -> Vec<Seen> {
    run.logs.iter().map(|log| read(&log.reader())).collect()
}

/// The broker ends: it is closed or killed, or the power goes.
fn end(run: Run, work: &Path, power: &Power, dice: &mut Dice) {
    match dice.below(5) {
        0 => run.logs.into_iter().for_each(|log| log.close().unwrap()),
        1 => {}
        way => {
            let synced = work.with_extension("synced");
            let _ = std::fs::remove_dir_all(&synced);
            power.copy_synced(work, &synced);
            drop(run);
            let how = [Cut::Shorter, Cut::Zeros, Cut::Mixed][way as usize - 2];
            power::cut(work, &synced, how, dice);
        }
    }
}

fn check_offline(home: &Home, work: &Path) -> Offline {
    let journal = verify_wal(&OsStorage, &work.join("journal"), &work.join("partitions")).ok();
    let mut any = journal
        .as_ref()
        .is_none_or(|journal| !journal.damages.is_empty());
    let mut lost = Vec::new();
    for log in &home.logs {
        let at = directory(work, log);
        let Ok(verified) = verify(&OsStorage, &at, log.identity) else {
            any = true;
            lost.push(Vec::new());
            continue;
        };
        any |= !verified.findings.is_empty();
        let wal_only = journal.as_ref();
        let wal_only = wal_only.and_then(|found| found.of(log.identity, &at, verified.log_end));
        let wal_only: WalOnlyRange = wal_only.unwrap_or_default();
        let found = verified.findings.iter().map(|finding| finding.offsets);
        let wal_only = wal_only
            .lost
            .iter()
            .map(|damage| (damage.start, damage.end));
        lost.push(found.chain(wal_only).collect());
    }
    Offline { journal, lost, any }
}

/// The start and the tool report the same damage of the journal, and losses within a limit are reported if something is left.
fn check_reports(offline: &Offline, run: &Run, dues: &[Due]) -> Result<(), Fault> {
    let damages = run.committer.wal_damages();
    let found = offline.journal.as_ref().map(|journal| &journal.damages);
    if found != Some(&damages) {
        return silent(&format!("the start reports {damages:?}, verify {found:?}"));
    }
    let is_reported = |limit: Limit| limit != Limit::LastRounds;
    let must = dues.iter().any(|due| due.limit.is_some_and(is_reported));
    if must && !damages.iter().any(|damage| damage.fault.can_cost()) {
        return silent("a loss of the journal is not reported");
    }
    Ok(())
}

/// Refused offsets were in damaged frames.
fn too_wide(due: &Due, seen: &Seen) -> Option<Fault> {
    let is_hit = |offset: &u64| {
        due.hit
            .iter()
            .any(|(from, to)| (*from..*to).contains(offset))
    };
    let mut refused = seen.refused.iter().flat_map(|(from, to)| *from..*to);
    let beyond = refused.find(|offset| !is_hit(offset))?;
    Some((
        "wide",
        format!("{beyond} is refused, {:?} was hit", due.hit),
    ))
}

/// Refused offsets were named by the tool before.
fn unforeseen(seen: &Seen, lost: &[(u64, u64)]) -> Option<Fault> {
    let is_named = |offset: &u64| lost.iter().any(|(from, to)| (*from..*to).contains(offset));
    let mut refused = seen.refused.iter().flat_map(|(from, to)| *from..*to);
    let beyond = refused.find(|offset| !is_named(offset))?;
    Some((
        "silent",
        format!("{beyond} is refused, verify names {lost:?}"),
    ))
}
