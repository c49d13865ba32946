//! The verdict on a damaged log.
use crate::apply::Injury;
use crate::prepare::{Template, append};
use bascule_log::integrity::{inspect, verify};
use bascule_log::{GroupCommitter, Log, LogReader, OsStorage, ReadError, ReadMode};
use bascule_record::{Batch, Batches, Codec, Header};
use std::path::Path;
use std::sync::Arc;

/// What readers got.
#[derive(Default)]
pub struct Seen {
    pub served: Vec<(u64, Vec<u8>)>,
    pub refused: Vec<(u64, u64)>,
}

impl Seen {
    /// Returns whether the offset is served or refused.
    pub fn knows(&self, offset: u64) -> bool {
        let is_refused = |(from, to): &(u64, u64)| (*from..*to).contains(&offset);
        self.served.iter().any(|(served, _)| *served == offset)
            || self.refused.iter().any(is_refused)
    }
}

/// The verdict: `detected`, `harmless`, `wrong`, `silent` (lost records are not reported), `reused`, `wide` (more is
/// refused than what was damaged).
pub fn judge(template: &Template, directory: &Path, injury: &Injury) -> (&'static str, String) {
    let found = verify(&OsStorage, directory, template.identity);
    let found = found.map_or(true, |verified| !verified.findings.is_empty());
    let committer = GroupCommitter::stepped(Arc::new(OsStorage));
    let open = || {
        Log::open(
            directory,
            template.identity,
            template.options.clone(),
            &committer,
        )
    };
    // Refusing to open is an answer: nothing is served, nothing was touched.
    let Ok((mut log, recovery)) = open() else {
        return ("detected", String::new());
    };
    log.set_high_watermark(u64::MAX);
    let acked = (template.start, template.durable);
    let first = read(&log.reader());
    if let Some(fault) = check(acked, &first, &log.reader(), &template.values) {
        return fault;
    }
    if let Some(fault) = too_wide(template, injury, &first) {
        return fault;
    }
    // The log continues: new records get new offsets, and the next start finds the same.
    let end = log.reader().log_end();
    let mut values = template.values.clone();
    values.truncate(end as usize);
    values.resize(end as usize, Vec::new());
    let mut fresh = values.clone();
    append((&mut log, &committer), &mut fresh, 2, 9, Codec::None);
    drop(log);
    let Ok((log, _)) = open() else {
        return ("silent", "it does not open a second time".to_owned());
    };
    log.set_high_watermark(u64::MAX);
    let second = read(&log.reader());
    let mut expected = template.values.clone();
    expected.truncate(end as usize);
    expected.resize(end as usize, Vec::new());
    expected.extend_from_slice(&fresh[end as usize..]);
    if let Some(fault) = check(acked, &second, &log.reader(), &expected) {
        return fault;
    }
    if let Some(fault) = too_wide(template, injury, &second) {
        return fault;
    }
    // Records served in the first run are durable: the second run serves or refuses them.
    let lost = |(offset, _): &&(u64, Vec<u8>)| !second.knows(*offset);
    if let Some((offset, _)) = first.served.iter().find(lost) {
        return ("silent", format!("the second run lost offset {offset}"));
    }
    let quarantined = !log.reader().quarantine().is_empty();
    let said = found
        || recovery.cut_bytes > 0
        || !recovery.damaged.is_empty()
        || !first.refused.is_empty()
        || quarantined;
    (if said { "detected" } else { "harmless" }, String::new())
}

/// Everything served is right, and every offset [start, durable) is served or refused.
pub fn check(
    (start, durable): (u64, u64),
    seen: &Seen,
    reader: &LogReader,
    values: &[Vec<u8>],
) -> Option<(&'static str, String)> {
    for (offset, value) in &seen.served {
        if values.get(*offset as usize) != Some(value) {
            return Some((
                "wrong",
                format!("offset {offset}: {:?}", String::from_utf8_lossy(value)),
            ));
        }
    }
    if reader.log_end() < durable {
        return Some((
            "reused",
            format!("it ends at {} of {durable}", reader.log_end()),
        ));
    }
    let mut covered = vec![false; durable as usize];
    let mut cover = |from: u64, to: u64| {
        for slot in covered.iter_mut().take(to as usize).skip(from as usize) {
            *slot = true;
        }
    };
    seen.served
        .iter()
        .for_each(|(offset, _)| cover(*offset, offset + 1));
    seen.refused.iter().for_each(|(from, to)| cover(*from, *to));
    let gap = (start..durable).find(|offset| !covered[*offset as usize])?;
    Some((
        "silent",
        format!("offset {gap} of [{start}, {durable}) is gone"),
    ))
}

/// One flipped bit costs the batch that it is in and nothing else: the next one proves itself by the damaged one's length or
/// checksum, of which at most one was hit. In other files than segments it costs nothing.
fn too_wide(template: &Template, injury: &Injury, seen: &Seen) -> Option<(&'static str, String)> {
    if injury.kind != "flip" {
        return None;
    }
    let (from, to) = held_by(template, injury);
    let beyond = |(start, end): &&(u64, u64)| *start < from || *end > to;
    let wide = seen.refused.iter().find(beyond)?;
    Some((
        "wide",
        format!("{wide:?} is refused, [{from}, {to}) was damaged"),
    ))
}

/// The offsets of the batch in which the damage begins; none when it is in no batch.
fn held_by(template: &Template, injury: &Injury) -> (u64, u64) {
    let view = inspect(&OsStorage, &template.now, template.identity, 0, usize::MAX);
    let view = view.expect("the template is valid");
    let name = Path::new(&injury.path).file_name();
    let segment = view
        .segments
        .iter()
        .find(|segment| segment.path.file_name() == name);
    let held = segment.and_then(|segment| {
        view.batches.iter().find(|batch| {
            let header = &batch.header;
            let end = batch.position + header.batch_bytes() as u64;
            (segment.base_offset..segment.next_offset).contains(&header.base_offset)
                && (batch.position..end).contains(&injury.at.0)
        })
    });
    held.map_or((0, 0), |batch| {
        (batch.header.base_offset, batch.header.next_offset())
    })
}

/// Everything from the start, and past each damage.
pub fn read(reader: &LogReader) -> Seen {
    let mut seen = Seen::default();
    let mut cursor = reader.cursor(0);
    loop {
        match cursor.next(u64::MAX, 2000, ReadMode::Blocking) {
            Ok(None) => return seen,
            Ok(Some(bytes)) => {
                for bytes in Batches::new(bytes) {
                    let bytes = bytes.expect("the cursor returns whole batches");
                    let Ok(batch) = Batch::read(&bytes) else {
                        let header =
                            Header::read(&bytes).expect("the cursor returns valid headers");
                        let ReadError::Damaged(damage) = reader.damaged(&header) else {
                            panic!("damage is reported as damage");
                        };
                        seen.refused.push((damage.start, damage.end));
                        continue;
                    };
                    let value = |i| batch.value(i).unwrap_or_default().to_vec();
                    seen.served
                        .extend((0..batch.len()).map(|i| (batch.offset(i), value(i))));
                }
            }
            Err(ReadError::Damaged(damage)) => {
                assert!(damage.start < damage.end && damage.end > cursor.offset());
                seen.refused.push((damage.start, damage.end));
                cursor.skip_to(damage.end);
            }
            Err(error) => panic!("{error}"),
        }
    }
}
