//! Pieces on disk, and what a table makes of them.
use super::index::Index;
use super::writer::{Folder, PieceWriter};
use super::*;
use crate::events::{Event, Events};
use bascule_record::{Batch, BatchBuilder, BatchLimits, Codec, RecordRef, Stamp};
use bascule_wire::flight::digest::RowDigest;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HERE: u64 = 65_539;
const GOLDEN: &str = include_str!("../../../../specs/vectors/stage/piece.hex");

fn id() -> PieceId {
    PieceId {
        sink: 7,
        attempt: Attempt {
            generation: 9,
            epoch: 5,
            token: "000102030405060708090a0b0c0d0e0f".parse().unwrap(),
        },
        task: 2,
        task_attempt: 129,
    }
}

fn records(batch: usize) -> Vec<RecordRef<'static>> {
    let record = |key, value| RecordRef {
        timestamp: 1_700_000_000_000_000_000,
        key,
        value,
        ..RecordRef::default()
    };
    match batch {
        0 => vec![record(Some(b"a"), Some(b"one")), record(None, None)],
        _ => vec![record(Some(b"b"), Some(b""))],
    }
}

/// Seals the piece `id` with the rows above; its path.
fn write(folder: &Path, id: PieceId) -> std::path::PathBuf {
    let folder = Folder {
        path: folder.to_owned(),
        incarnation: HERE,
        number: 3,
        sealer: Arc::default(),
    };
    let mut piece = PieceWriter::new(folder, id, 0);
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let mut digest = RowDigest::new("orders");
    let (mut chain, mut rows) = (0, 0);
    for batch in 0..2 {
        for record in records(batch) {
            builder.push(&record).unwrap();
            digest.add(&record);
        }
        let sealed = builder.seal(Codec::None, None, None).unwrap();
        let stamp = Stamp {
            incarnation: HERE,
            partition: 3,
            leader_epoch: 0,
            base_offset: rows,
            chain,
            not_before: i64::MIN,
        };
        rows += u64::from(sealed.count());
        let bytes = sealed.stamp(&stamp);
        chain = Batch::read(&bytes).unwrap().header().link();
        piece.append(&bytes).unwrap();
    }
    piece.seal(digest.value()).unwrap();
    assert_eq!(
        fs::metadata(piece.path()).unwrap().len(),
        piece.file_bytes()
    );
    piece.path()
}

/// A data directory's folder of partitions, with the stage folder of one.
fn home() -> (tempfile::TempDir, std::path::PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(HERE.to_string()).join("stage");
    fs::create_dir_all(&folder).unwrap();
    (home, folder)
}

fn stage(partitions: &Path) -> (Arc<Stage>, Arc<Events>) {
    let events = Arc::new(Events::new(1000).unwrap());
    let stage = Arc::new(Stage::new(events.clone()));
    stage.open(partitions);
    (stage, events)
}

fn sink(last_epoch: Option<u64>) -> Sink {
    Sink {
        id: 7,
        name: "default/orders".into(),
        owner: String::new(),
        generation: 9,
        last_epoch,
        producer: (1 << 63) + 7,
        quota_bytes: 0,
        expired: Vec::new(),
        link: None,
    }
}

fn known(sink: Sink) -> SinkChanges {
    SinkChanges {
        sinks: vec![sink],
        removed: Vec::new(),
        complete: true,
    }
}

fn until(condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < end, "it did not come true");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn read(folder: &Path) -> Result<Vec<Batch>, PieceFault> {
    let piece = PieceFile::open(folder, HERE, &id())?;
    let batches: Result<Vec<_>, _> = piece.batches()?.collect();
    Ok(batches?
        .iter()
        .map(|batch| Batch::read(batch).unwrap())
        .collect())
}

#[test]
fn a_piece_has_the_documented_bytes_and_is_read_back() {
    let (_home, folder) = home();
    let path = write(&folder, id());
    let bytes = fs::read(&path).unwrap();
    let digits: Vec<u8> = GOLDEN.bytes().filter(u8::is_ascii_hexdigit).collect();
    let golden: Vec<_> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    assert!(bytes == golden, "{bytes:02x?}");
    let names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(names, [path], "the temporary name is gone");
    let batches = read(&folder).unwrap();
    let values: Vec<_> = batches
        .iter()
        .flat_map(|batch| (0..batch.len()).map(|i| (batch.key(i), batch.value(i))))
        .collect();
    let written: Vec<_> = [records(0), records(1)].concat();
    let written: Vec<_> = written
        .iter()
        .map(|record| (record.key, record.value))
        .collect();
    assert_eq!(values, written);
    assert_eq!(batches[1].header().base_offset, 2);
}

#[test]
fn no_damaged_byte_and_no_cut_goes_unnoticed() {
    let (_home, folder) = home();
    let path = write(&folder, id());
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(read(&folder).is_err(), "cut to {length}");
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(read(&folder).is_err(), "byte {at}");
    }
    let other = PieceId { task: 3, ..id() };
    fs::write(folder.join(other.file_name()), &whole).unwrap();
    let error = PieceFile::open(&folder, HERE, &other).unwrap_err();
    assert!(error.to_string().contains("of another piece"), "{error}");
    let error = PieceFile::open(&folder, HERE, &PieceId { task: 4, ..id() }).unwrap_err();
    assert!(matches!(error, PieceFault::Missing { .. }), "{error}");
}

#[test]
fn a_start_finds_sealed_pieces_removes_others_and_leaves_what_is_not_its_own() {
    let (home, folder) = home();
    let sealed = write(&folder, id());
    let unsealed = folder.join(format!("{}.3.tmp", id().file_name()));
    let foreign = folder.join("notes.txt");
    fs::write(&unsealed, "half").unwrap();
    fs::write(&foreign, "mine").unwrap();
    fs::create_dir(folder.join("7-9-5.piece")).unwrap();
    let (stage, events) = stage(home.path());
    assert!(sealed.exists() && foreign.exists() && !unsealed.exists());
    let staged = stage.staged();
    assert_eq!((staged.len(), staged[0].pieces), (1, 1));
    assert_eq!(staged[0].bytes, fs::metadata(&sealed).unwrap().len());
    assert_eq!(staged[0].incarnations, [HERE]);
    let texts: Vec<_> = events
        .poll(10)
        .into_iter()
        .filter_map(|event| match event {
            Event::Log { message, .. } => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(
        texts.iter().any(|text| text.contains("notes.txt")),
        "{texts:?}"
    );
}

#[test]
fn only_a_complete_table_deletes_and_only_what_is_void() {
    let (home, folder) = home();
    let void = write(&folder, id());
    let later = PieceId {
        attempt: Attempt {
            epoch: 6,
            ..id().attempt
        },
        ..id()
    };
    let later = write(&folder, later);
    let (stage, _) = stage(home.path());
    let partial = SinkChanges {
        complete: false,
        ..known(sink(Some(5)))
    };
    stage.set_sinks(9, partial).unwrap();
    assert_eq!(stage.staged().len(), 2, "nothing is judged yet");
    stage.set_sinks(10, known(sink(Some(5)))).unwrap();
    assert_eq!(stage.staged().len(), 1);
    until(|| !void.exists());
    assert!(later.exists());
    assert_eq!(*stage.watch().borrow(), 10);
    let stale = stage.set_sinks(10, known(sink(None)));
    assert_eq!(
        stale,
        Err(StaleVersion {
            version: 10,
            known: 10
        })
    );
}

#[test]
fn a_decided_piece_stays_until_it_is_linked_and_adds_up() {
    let (home, folder) = home();
    let path = write(&folder, id());
    let (stage, _) = stage(home.path());
    let contents = *PieceFile::open(&folder, HERE, &id()).unwrap().contents();
    let mut link = Link {
        generation: 9,
        epoch: 5,
        token: id().attempt.token,
        ordinal: 1,
        winners: vec![64, 64, 129],
        targets: vec![Target {
            incarnation: HERE,
            rows: 3,
            digest: contents.digest,
            from_offset: 0,
        }],
    };
    let decided = |link: &Link| Sink {
        link: Some(link.clone()),
        ..sink(Some(5))
    };
    stage.set_sinks(10, known(decided(&link))).unwrap();
    let pieces = stage.decided_pieces(HERE, 7, &link).unwrap();
    assert_eq!((pieces.len(), *pieces[0].id()), (1, id()));
    assert_eq!(stage.held(HERE), 2, "a piece, and a link");
    link.targets[0].rows = 4;
    let fault = stage.decided_pieces(HERE, 7, &link).unwrap_err();
    assert!(
        matches!(
            fault,
            PieceFault::Incomplete {
                rows: 3,
                decided: 4,
                ..
            }
        ),
        "{fault}"
    );
    assert!(path.exists());
    stage.set_sinks(11, known(sink(Some(5)))).unwrap();
    until(|| !path.exists());
    assert_eq!(stage.held(HERE), 0);
}

#[test]
fn what_is_claimed_must_be_here_whole_and_nothing_else() {
    let (home, folder) = home();
    write(&folder, id());
    let (stage, _) = stage(home.path());
    stage.set_sinks(10, known(sink(None))).unwrap();
    let digest = PieceFile::open(&folder, HERE, &id())
        .unwrap()
        .contents()
        .digest;
    let request = |rows, digest, winners: &[u64], incarnation| ConfirmRequest {
        sink: 7,
        generation: 9,
        epoch: 5,
        token: id().attempt.token,
        winners: winners.to_vec(),
        targets: vec![Claim {
            incarnation,
            rows,
            digest,
        }],
    };
    let winners = [1, 1, 129];
    let confirm = |request: &ConfirmRequest| stage.confirm(request, |_| Ok(40));
    let agreed = confirm(&request(3, digest, &winners, HERE));
    assert_eq!((agreed.missing.len(), agreed.from_offsets[&HERE]), (0, 40));
    for (wrong, expected) in [
        (
            request(4, digest, &winners, HERE),
            "4 rows are claimed, and 3 are staged",
        ),
        (
            request(3, Digest(1), &winners, HERE),
            "are not those that are claimed",
        ),
        (
            request(3, digest, &[1, 1, 128], HERE),
            "3 rows are claimed, and 0 are",
        ),
        (request(3, digest, &winners, HERE + 1), "none is claimed"),
    ] {
        let reasons: Vec<_> = confirm(&wrong).missing;
        assert!(
            reasons
                .iter()
                .any(|missing| missing.reason.contains(expected)),
            "{reasons:?}"
        );
    }
    let closed = stage.confirm(
        &request(3, digest, &winners, HERE),
        |_| Err("closed".into()),
    );
    assert_eq!(closed.missing[0].reason, "closed");
    stage.forget(&[HERE]);
    assert_eq!(stage.staged().len(), 0);
}

#[test]
fn quotas_count_small_pieces_whole_and_give_back() {
    let mut index = Index::default();
    let sink = Sink {
        quota_bytes: 10_000,
        ..sink(None)
    };
    index.reserve(&sink, 4096, 1, u64::MAX).unwrap();
    index.reserve(&sink, 4096, 1, u64::MAX).unwrap();
    let error = index.reserve(&sink, 4096, 1, u64::MAX).unwrap_err();
    assert_eq!(
        error.details(),
        serde_json::json!({"bytes": 12_288, "quota": 10_000})
    );
    assert!(
        error
            .to_string()
            .contains("sink default/orders needs 12288 bytes"),
        "{error}"
    );
    index.release(7, 4096, 1);
    index.reserve(&sink, 4096, 1, u64::MAX).unwrap();
    let error = index.reserve(&sink, 1, 0, 8192).unwrap_err();
    assert!(error.to_string().contains("this broker"), "{error}");
    let many = Sink {
        quota_bytes: u64::MAX,
        ..sink
    };
    let error = index.reserve(&many, 0, 99_999, u64::MAX).unwrap_err();
    assert!(
        matches!(error, StageError::Pieces { limit: 100_000, .. }),
        "{error}"
    );
    index.reserve(&many, 0, 99_998, u64::MAX).unwrap();
}
