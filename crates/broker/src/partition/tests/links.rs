//! Published epochs of sinks are appended exactly once, whatever ends in between.
use super::encryption::{encrypted, home_with};
use super::*;
use crate::partition::link::drive;
use crate::stage::{Attempt, Link, PieceId, Token};
use bascule_log::{Durability, Log};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const TOKEN: u128 = 5;
/// Rows of the batches of each task.
const TASKS: [&[usize]; 3] = [&[2, 3], &[1, 4], &[5]];
pub(super) const ROWS: usize = 15;
pub(super) const BATCHES: usize = 5;

/// Batches of one task of a sink, whose rows are numbered from `first` on.
fn batches(sink: u64, first: usize, sizes: &[usize]) -> Vec<SealedBatch> {
    let mut next = first;
    let batch = |size: &usize| {
        let mut builder = BatchBuilder::new(BatchLimits::default());
        for row in next..next + size {
            let value = row_of(sink, row);
            let record = RecordRef {
                timestamp: 1_000,
                value: Some(value.as_bytes()),
                ..RecordRef::default()
            };
            builder.push(&record).unwrap();
        }
        next += size;
        builder.seal(Codec::Lz4, None, None).unwrap()
    };
    sizes.iter().map(batch).collect()
}

fn row_of(sink: u64, row: usize) -> String {
    format!("sink {sink} row {row}")
}

/// Stages all tasks of a sink; its row of the table once that is published, to be linked from `from` on.
pub(super) fn staged(partition: &Partition, sink: u64, from: u64) -> Value {
    let mut first = 0;
    let tasks = TASKS.iter().map(|sizes| {
        let task = batches(sink, first, sizes);
        first += sizes.iter().sum::<usize>();
        task
    });
    let tasks = tasks.collect();
    staged_tasks(partition, sink, from, tasks)
}

/// Stages these batches, by task; the row of the table once that is published.
pub(super) fn staged_tasks(
    partition: &Partition,
    sink: u64,
    from: u64,
    tasks: Vec<Vec<SealedBatch>>,
) -> Value {
    let count = tasks.len();
    let mut rows = 0;
    for (task, batches) in tasks.into_iter().enumerate() {
        let id = PieceId {
            sink,
            attempt: Attempt {
                generation: sink,
                epoch: 0,
                token: Token(TOKEN),
            },
            task: task as u32,
            task_attempt: 64,
        };
        rows += batches.iter().map(SealedBatch::count).sum::<u32>();
        let stage = &partition.0.context.stage;
        stage.put(&partition.stage_partition(), id, batches, 1);
    }
    let (incarnation, digest) = (partition.identity().incarnation, format!("{count:032x}"));
    row_of_table(
        sink,
        &json!({
            "generation": sink, "epoch": 0, "token": Token(TOKEN), "ordinal": 3, "winners": vec![64; count],
            "targets": [{"incarnation": incarnation, "rows": rows, "digest": digest, "from_offset": from}],
        }),
    )
}

pub(super) fn row_of_table(sink: u64, link: &Value) -> Value {
    json!({
        "id": sink, "name": format!("default/s{sink}"), "owner": "", "generation": sink, "last_epoch": 0,
        "producer": Producer::FIRST_SINK_ID + sink, "quota_bytes": 0, "expired": [], "link": link,
    })
}

/// Gives the broker a table with these sinks alone.
pub(super) fn set_sinks(home: &Home, version: u64, sinks: &[&Value]) {
    let changes = json!({"sinks": sinks, "removed": [], "complete": true});
    let changes: SinkChanges = serde_json::from_value(changes).unwrap();
    home.context.stage.set_sinks(version, changes).unwrap();
}

fn link_of(row: &Value) -> Link {
    serde_json::from_value(row["link"].clone()).unwrap()
}

/// What links of this broker. Ends with the test.
pub(super) struct Driven(JoinHandle<()>);
impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) fn driven(home: &Home) -> Driven {
    Driven(tokio::spawn(drive(home.context.clone())))
}

pub(super) fn home_of_links() -> Home {
    let home = home();
    home.context.stage.open(home.folder.path());
    home
}

/// Waits for a report about a sink: its fields and its sentence.
pub(super) async fn reported(home: &Home, wanted: PartitionChange, sink: u64) -> (Value, String) {
    let limit = Instant::now() + Duration::from_mins(1);
    loop {
        for event in home.context.events.poll(usize::MAX) {
            match event {
                Event::Partition {
                    change,
                    fields,
                    message,
                    ..
                } if change == wanted && fields["sink"] == sink => return (fields, message),
                _ => {}
            }
        }
        assert!(Instant::now() < limit, "{wanted:?} of sink {sink}");
        sleep(Duration::from_millis(5)).await;
    }
}

pub(super) fn rows_of(sink: u64, values: &[String]) -> Vec<String> {
    let prefix = format!("sink {sink} ");
    let of = values.iter().filter(|value| value.starts_with(&prefix));
    of.cloned().collect()
}

pub(super) fn all_rows(sink: u64) -> Vec<String> {
    (0..ROWS).map(|number| row_of(sink, number)).collect()
}

/// Each row of sink 4 is there once, beside one record that was there before and the records of [`crash_after`]. The number of all.
pub(super) fn assert_linked_once(partition: &Partition, appended: usize) -> usize {
    let stored = values(partition);
    assert_eq!(
        rows_of(4, &stored),
        all_rows(4),
        "{appended} batches before"
    );
    assert_eq!(stored.len(), 1 + ROWS + appended);
    stored.len()
}

/// What a crash after so many batches of the link leaves, with records of others between them.
pub(super) fn crash_after(home: &Home, spec: &PartitionSpec, row: &Value, appended: usize) {
    let link = link_of(row);
    let sink = row["id"].as_u64().unwrap();
    let options = spec.log_options(&home.context.master_keys);
    let (mut log, _) = Log::open(
        &home.directory(),
        spec.log_identity(),
        options,
        &home.committer,
    )
    .unwrap();
    let pieces = home.context.stage.decided_pieces(7, sink, &link).unwrap();
    let stored: Vec<_> = pieces
        .iter()
        .flat_map(|piece| {
            piece
                .batches()
                .unwrap()
                .map(Result::unwrap)
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(appended <= stored.len());
    let mut base_sequence = 0;
    for bytes in &stored[..appended] {
        let producer = Producer {
            id: Producer::FIRST_SINK_ID + sink,
            epoch: link.ordinal,
            base_sequence,
        };
        let keys = log.reader().keys();
        let batch = SealedBatch::restore(bytes, &keys, now_ns(), producer).unwrap();
        base_sequence += batch.count();
        log.append(batch, 1, 0).unwrap();
        log.append(sealed(base_sequence, &["foreign"]), 1, 0)
            .unwrap();
    }
}

#[tokio::test]
async fn a_link_continues_behind_what_is_in_the_log_wherever_it_ended() {
    for appended in 0..=BATCHES {
        let home = home_of_links();
        set_sinks(&home, 1, &[]);
        let partition = home.led(spec());
        put(&partition, records(&["before"])).await.unwrap();
        let row = staged(&partition, 4, 1);
        partition.close(EndReason::Closed).await;
        set_sinks(&home, 10, &[&row]);
        crash_after(&home, &spec(), &row, appended);

        let _driven = driven(&home);
        let partition = home.led(spec());
        let (fields, _) = reported(&home, PartitionChange::Linked, 4).await;
        assert_eq!(
            (&fields["ordinal"], &fields["base_offset"]),
            (&json!(3), &json!(1))
        );
        let stored = assert_linked_once(&partition, appended);
        assert_eq!(partition.reader().durable_end(), stored as u64);
        partition.close(EndReason::Closed).await;
    }
}

#[tokio::test]
async fn in_class_memory_linked_rows_are_synced() {
    let home = home_of_links();
    set_sinks(&home, 1, &[]);
    let partition = home.led(memory());
    let row = staged(&partition, 4, 0);
    let _driven = driven(&home);
    set_sinks(&home, 10, &[&row]);
    reported(&home, PartitionChange::Linked, 4).await;
    assert_eq!(values(&partition), all_rows(4));
    assert_eq!(partition.reader().durable_end(), ROWS as u64);
    assert_eq!(
        spec().log_options(&home.context.master_keys).durability,
        Durability::Disk,
        "the other class is another spec"
    );
}

#[tokio::test]
async fn a_link_is_not_a_publish() {
    let home = home_of_links();
    set_sinks(&home, 1, &[]);
    let spec = PartitionSpec {
        readonly: true,
        concurrency_control: true,
        max_record_bytes: 1,
        nats_copy: NatsCopy::Value,
        ..spec()
    };
    let partition = home.led(spec);
    let row = staged(&partition, 4, 0);
    let _driven = driven(&home);
    set_sinks(&home, 10, &[&row]);
    reported(&home, PartitionChange::Linked, 4).await;
    assert_eq!(values(&partition), all_rows(4));
    let (stored, _) = read(&partition);
    let hour = Duration::from_hours(1).as_nanos() as i64;
    assert!(stored.iter().all(|(_, time, _)| now_ns() - time < hour));
}

#[tokio::test]
async fn too_few_replicas_delay_it_and_are_named() {
    let home = home_of_links();
    set_sinks(&home, 1, &[]);
    let few = PartitionSpec {
        min_isr: 2,
        ..spec()
    };
    let partition = home.led(few.clone());
    let row = staged(&partition, 4, 0);
    let _driven = driven(&home);
    set_sinks(&home, 10, &[&row]);
    let (fields, message) = reported(&home, PartitionChange::LinkBlocked, 4).await;
    assert_eq!(fields["ordinal"], 3);
    assert!(message.contains("min ISR is 2"), "{message}");
    assert_eq!(home.context.statistics.links_waiting.get(), 1);
    partition.configure(PartitionSpec { in_sync: 2, ..few });
    reported(&home, PartitionChange::Linked, 4).await;
    assert_eq!(home.context.statistics.links_waiting.get(), 0);
    assert_eq!(home.context.statistics.linked_rows.get(), ROWS as u64);
    assert_eq!(values(&partition), all_rows(4));
}

#[tokio::test]
async fn a_missing_master_key_delays_it() {
    let mut home = home_with(&["a"]);
    home.context.stage.open(home.folder.path());
    set_sinks(&home, 1, &[]);
    let spec = encrypted(&home);
    let partition = home.led(spec.clone());
    let row = staged(&partition, 4, 0);
    partition.close(EndReason::Closed).await;

    let with_key = home.context.clone();
    home.context = home_with(&["b"]).context;
    home.context.stage.open(home.folder.path());
    set_sinks(&home, 10, &[&row]);
    let locked = driven(&home);
    let partition = home.led(spec.clone());
    let (_, message) = reported(&home, PartitionChange::LinkBlocked, 4).await;
    assert!(message.contains("master key \"a\""), "{message}");
    assert_eq!(partition.reader().log_end(), 0);
    partition.close(EndReason::Closed).await;
    drop(locked);

    home.context = with_key;
    set_sinks(&home, 20, &[&row]);
    let _driven = driven(&home);
    let partition = home.led(spec);
    reported(&home, PartitionChange::Linked, 4).await;
    let bytes = partition.reader().cursor(0).next(1, 1, ReadMode::Blocking);
    let bytes = bytes.unwrap().unwrap();
    assert!(Batch::read(&bytes).unwrap_err().is_locked());
    let batch = partition.reader().open(&bytes).unwrap();
    assert_eq!(batch.value(0), Some(row_of(4, 0).as_bytes()));
    assert_eq!(partition.reader().high_watermark(), ROWS as u64);
}

#[tokio::test]
async fn two_sinks_and_a_publisher_do_not_mix_up() {
    let home = home_of_links();
    set_sinks(&home, 1, &[]);
    let partition = home.led(spec());
    let rows = [staged(&partition, 4, 0), staged(&partition, 5, 0)];
    let _driven = driven(&home);
    set_sinks(&home, 10, &[&rows[0], &rows[1]]);
    for _ in 0..20 {
        put(&partition, records(&["foreign"])).await.unwrap();
    }
    for sink in [4, 5] {
        reported(&home, PartitionChange::Linked, sink).await;
    }
    let stored = values(&partition);
    for sink in [4, 5] {
        assert_eq!(rows_of(sink, &stored), all_rows(sink));
    }
    assert_eq!(stored.len(), 2 * ROWS + 20);
}

#[tokio::test]
async fn what_is_trimmed_goes_when_no_link_needs_it() {
    let home = home_of_links();
    set_sinks(&home, 1, &[]);
    let partition = home.led(spec());
    put(&partition, records(&["a", "b"])).await.unwrap();
    let row = staged(&partition, 4, 1);
    let _driven = driven(&home);
    set_sinks(&home, 10, &[&row]);
    reported(&home, PartitionChange::Linked, 4).await;
    partition.configure(PartitionSpec {
        trimmed_to: 9,
        ..spec()
    });
    partition.flush(true).await;
    assert_eq!(partition.reader().log_start(), 1);
    set_sinks(&home, 20, &[&row_of_table(4, &Value::Null)]);
    let limit = Instant::now() + Duration::from_mins(1);
    while partition.reader().log_start() < 9 {
        assert!(Instant::now() < limit);
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn before_the_table_is_complete_nothing_is_removed_and_nothing_linked() {
    let mut home = home();
    let (limits, events) = (Limits::default(), home.context.events.clone());
    let unknown = PartitionContext::new(
        limits,
        events,
        Arc::default(),
        MasterKeyStore::default(),
        Arc::new(NoObserver),
    );
    home.context = Arc::new(unknown);
    home.context.stage.open(home.folder.path());
    let partition = home.led(spec());
    put(&partition, records(&["a", "b", "c"])).await.unwrap();
    let row = staged(&partition, 4, 3);
    let _driven = driven(&home);
    let changes = json!({"sinks": [row], "removed": []});
    let changes: SinkChanges = serde_json::from_value(changes).unwrap();
    home.context.stage.set_sinks(5, changes).unwrap();
    partition.configure(PartitionSpec {
        trimmed_to: 2,
        ..spec()
    });
    partition.flush(true).await;
    assert_eq!(values(&partition), ["a", "b", "c"]);
    set_sinks(&home, 10, &[&row]);
    reported(&home, PartitionChange::Linked, 4).await;
    assert_eq!(partition.reader().log_end(), 3 + ROWS as u64);
}

#[tokio::test]
async fn a_missing_piece_blocks_it_until_the_table_gives_it_up() {
    let home = home_of_links();
    set_sinks(&home, 1, &[]);
    let partition = home.led(spec());
    let row = staged(&partition, 4, 0);
    let folder = home.directory().join("stage");
    let first = std::fs::read_dir(&folder).unwrap().next().unwrap();
    std::fs::remove_file(first.unwrap().path()).unwrap();
    let _driven = driven(&home);
    set_sinks(&home, 10, &[&row]);
    let (_, message) = reported(&home, PartitionChange::LinkBlocked, 4).await;
    assert!(message.contains("is missing"), "{message}");
    set_sinks(&home, 20, &[&row_of_table(4, &Value::Null)]);
    let limit = Instant::now() + Duration::from_mins(1);
    while home.context.statistics.links_waiting.get() > 0 {
        assert!(Instant::now() < limit);
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(partition.reader().log_end(), 0);
}

#[tokio::test]
async fn a_partition_that_opens_again_is_linked() {
    let home = home_of_links();
    set_sinks(&home, 1, &[]);
    let partition = home.led(spec());
    let row = staged(&partition, 4, 0);
    partition.close(EndReason::Paused).await;
    let _driven = driven(&home);
    set_sinks(&home, 10, &[&row]);
    for _ in 0..2 {
        let partition = home.led(spec());
        reported(&home, PartitionChange::Linked, 4).await;
        assert_eq!(values(&partition), all_rows(4));
        partition.close(EndReason::Paused).await;
    }
}
