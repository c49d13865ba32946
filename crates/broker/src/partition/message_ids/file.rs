//! The file `message-ids` beside a partition's segments (`specs/formats/message-ids.md`).
use super::window::{Entry, MessageIds};
use bascule_log::LogId;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const NAME: &str = "message-ids";
const TEMPORARY: &str = "message-ids.tmp";
const MAGIC: &[u8; 4] = b"BSMI";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 44;
const ENTRY_BYTES: usize = 20;
const NO_LINK: u64 = u64::MAX;
/// Larger than what a broker writes: such a file is not read.
const MAX_FILE_BYTES: u64 = 4 << 30;

/// The window as of an offset of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub identity: LogId,
    /// It has the ids of all records below this offset.
    pub end: u64,
    /// Link of the batch before that offset; `None` when there is none.
    pub link: Option<u32>,
    pub(super) entries: Vec<Entry>,
    /// What is added to the entries' times to get the time of day.
    shift: i64,
}

impl Snapshot {
    /// The ids of records below `end`. `now_ns`: time of day.
    pub fn of(ids: &MessageIds, identity: LogId, end: u64, now_ns: i64) -> Self {
        Self {
            identity,
            end,
            link: None,
            entries: ids.below(end),
            shift: now_ns.saturating_sub(ids.now()),
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let texts: usize = self.entries.iter().map(|entry| entry.id.len()).sum();
        let length = HEAD_BYTES + self.entries.len() * ENTRY_BYTES + texts + 4;
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.identity.incarnation.to_le_bytes());
        out.extend_from_slice(&self.identity.partition.to_le_bytes());
        out.extend_from_slice(&self.end.to_le_bytes());
        out.extend_from_slice(&self.link.map_or(NO_LINK, u64::from).to_le_bytes());
        out.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
        for entry in &self.entries {
            let time = entry.time.saturating_add(self.shift);
            out.extend_from_slice(&entry.offset.to_le_bytes());
            out.extend_from_slice(&time.to_le_bytes());
            out.extend_from_slice(&(entry.id.len() as u32).to_le_bytes());
            out.extend_from_slice(&entry.id);
        }
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    /// `None` when the bytes fail their checksum or are not what is ever written: offsets that do not ascend below the
    /// end, ids that are empty or do not fit.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk()?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut rest = Fields(body);
        if rest.take(4)? != MAGIC || rest.u32()? != VERSION {
            return None;
        }
        let identity = LogId {
            incarnation: rest.u64()?,
            partition: rest.u32()?,
        };
        let end = rest.u64()?;
        let link = match rest.u64()? {
            NO_LINK => None,
            link => Some(u32::try_from(link).ok()?),
        };
        let count = rest.u64()?;
        let mut entries: Vec<Entry> = Vec::new();
        for _ in 0..count {
            let (offset, time) = (rest.u64()?, rest.u64()? as i64);
            let length = rest.u32()? as usize;
            let id = rest.take(length)?;
            let ascends = entries.last().is_none_or(|last| last.offset < offset);
            if id.is_empty() || !ascends || offset >= end {
                return None;
            }
            entries.push(Entry {
                id: id.into(),
                offset,
                time,
            });
        }
        rest.0.is_empty().then_some(Self {
            identity,
            end,
            link,
            entries,
            shift: 0,
        })
    }

    /// Replaces the file; how many bytes it has. When this returns, the new one is on disk.
    ///
    /// # Errors
    /// Those of the file system; the file is the one before then.
    pub fn save(&self, directory: &Path) -> io::Result<u64> {
        let bytes = self.to_bytes();
        let temporary = directory.join(TEMPORARY);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&temporary).and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()
        });
        if let Err(error) = written {
            // What was written of it takes space that may be short.
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
        fs::rename(&temporary, directory.join(NAME))?;
        File::open(directory)?.sync_all()?;
        Ok(bytes.len() as u64)
    }

    /// The file, if there is a valid one.
    ///
    /// # Errors
    /// Those of the file system; a file that is not there is none.
    pub(super) fn load(directory: &Path) -> io::Result<Option<Self>> {
        let path = directory.join(NAME);
        let bytes = match fs::metadata(&path) {
            Ok(found) if found.len() > MAX_FILE_BYTES => return Ok(None),
            Ok(_) => fs::read(&path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Self::from_bytes(&bytes))
    }
}

/// Fields from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(field)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::IdBudget;
    use crate::partition::message_ids::fuzz::message_ids;
    use proptest::prelude::*;

    const IDENTITY: LogId = LogId {
        incarnation: 7,
        partition: 0,
    };

    fn snapshot(link: Option<u32>, ids: &[&[u8]]) -> Snapshot {
        let entries = (0..).zip(ids).map(|(at, id)| Entry {
            id: (*id).into(),
            offset: 3 * at,
            time: at as i64,
        });
        Snapshot {
            identity: IDENTITY,
            end: 100,
            link,
            entries: entries.collect(),
            shift: 0,
        }
    }

    #[test]
    fn what_was_saved_is_loaded_and_belongs_to_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Snapshot::load(folder.path()).unwrap(), None);
        let long = vec![b'x'; 70_000];
        for link in [None, Some(0), Some(u32::MAX)] {
            let saved = snapshot(link, &[b"a", b"\xe9\xff", &long]);
            let bytes = saved.save(folder.path()).unwrap();
            let path = folder.path().join(NAME);
            let found = fs::metadata(&path).unwrap();
            assert_eq!(
                (found.len(), found.permissions().mode() & 0o777),
                (bytes, 0o600)
            );
            assert_eq!(Snapshot::load(folder.path()).unwrap(), Some(saved));
            assert!(!folder.path().join(TEMPORARY).exists());
        }
    }

    #[test]
    fn times_are_stored_as_times_of_day() {
        let mut ids = MessageIds::new(IdBudget::new(1 << 20), 1_000_000_000);
        ids.insert(b"a", 0, 1_000_000_000);
        ids.insert(b"b", 1, 1_000_000_000);
        // The time of day was set ahead by an hour in this run.
        let hour = 3_600_000_000_000;
        let saved = Snapshot::of(&ids, IDENTITY, 1, ids.now() + hour);
        let loaded = Snapshot::from_bytes(&saved.to_bytes()).unwrap();
        assert_eq!(
            loaded.entries.len(),
            1,
            "the record at offset 1 is not covered"
        );
        let shift = loaded.entries[0].time - 1_000_000_000 - hour;
        assert!(shift.abs() < 1_000_000_000, "{shift}");
    }

    #[test]
    fn what_is_never_written_is_not_read() {
        let mut twice = snapshot(None, &[b"a", b"b"]);
        twice.entries[1].offset = 0;
        let mut behind = snapshot(None, &[b"a"]);
        behind.entries[0].offset = 100;
        for wrong in [twice, behind, snapshot(None, &[b""])] {
            assert_eq!(Snapshot::from_bytes(&wrong.to_bytes()), None, "{wrong:?}");
        }
        let mut counted = snapshot(None, &[b"a"]).to_bytes();
        counted[36..44].copy_from_slice(&u64::MAX.to_le_bytes());
        let body = counted.len() - 4;
        let checksum = crc32c::crc32c(&counted[..body]).to_le_bytes();
        counted[body..].copy_from_slice(&checksum);
        assert_eq!(Snapshot::from_bytes(&counted), None);
    }

    /// A file with this body and its checksum.
    fn checked(body: &[u8]) -> Vec<u8> {
        [body, &crc32c::crc32c(body).to_le_bytes()].concat()
    }

    proptest! {
        #[test]
        fn a_changed_or_cut_file_is_not_read(at in 0_usize..80, bit in 0_u8..8, cut in 0_usize..80) {
            let bytes = snapshot(Some(5), &[b"a", b"bc"]).to_bytes();
            let mut changed = bytes.clone();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= 1 << bit;
                prop_assert_eq!(Snapshot::from_bytes(&changed), None);
            }
            if cut < bytes.len() {
                prop_assert_eq!(Snapshot::from_bytes(&bytes[..cut]), None);
            }
        }

        #[test]
        fn any_bytes_under_a_checksum_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            bytes.splice(0..0, *MAGIC);
            bytes.splice(4..4, VERSION.to_le_bytes());
            let checksum = crc32c::crc32c(&bytes).to_le_bytes();
            bytes.extend(checksum);
            if let Some((written, _)) = message_ids(&bytes) {
                prop_assert_eq!(written, bytes);
            }
        }

        #[test]
        fn valid_files_are_read_whole_whatever_their_ids_and_times(
            ids in proptest::collection::vec((proptest::collection::vec(0_u8..3, 1..4), 1_u64..1 << 40, any::<i64>()), 0..40),
            link in any::<Option<u32>>(),
            extra in proptest::collection::vec(any::<u8>(), 1..9),
            at in any::<prop::sample::Index>(),
        ) {
            let mut end = 0;
            let entries: Vec<Entry> = ids
                .into_iter()
                .map(|(id, step, time)| {
                    end += step;
                    Entry { id: id.into(), offset: end - 1, time }
                })
                .collect();
            let count = entries.len();
            let saved = Snapshot { identity: IDENTITY, end, link, entries, shift: 0 };
            let bytes = saved.to_bytes();
            prop_assert_eq!(message_ids(&bytes), Some((bytes.clone(), count)));
            let body = &bytes[..bytes.len() - 4];
            let longer = [body, &extra].concat();
            prop_assert_eq!(message_ids(&checked(&longer)), None);
            let mut changed = body.to_vec();
            changed[at.index(body.len())] ^= extra[0];
            let changed = checked(&changed);
            if let Some((written, _)) = message_ids(&changed) {
                prop_assert_eq!(written, changed);
            }
        }
    }
}
