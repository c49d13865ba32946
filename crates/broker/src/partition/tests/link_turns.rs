//! Large epochs of some sinks do not hold up the small ones of others.
use super::links::*;
use super::*;
use serde_json::Value;

/// A turn appends 4 MiB.
const LARGE_BATCHES: usize = 14;
const BATCH_BYTES: usize = 1 << 20;

/// A batch of one row of 1 MiB.
fn large_batch() -> SealedBatch {
    let value = vec![b'.'; BATCH_BYTES];
    let mut builder = BatchBuilder::new(BatchLimits {
        bytes: 2 * BATCH_BYTES,
        record_bytes: 2 * BATCH_BYTES,
        ..BatchLimits::default()
    });
    let record = RecordRef {
        timestamp: 1_000,
        value: Some(&value),
        ..RecordRef::default()
    };
    builder.push(&record).unwrap();
    builder.seal(Codec::None, None, None).unwrap()
}

/// Stages an epoch of several turns.
fn staged_large(partition: &Partition, sink: u64) -> Value {
    let batches = (0..LARGE_BATCHES).map(|_| large_batch()).collect();
    staged_tasks(partition, sink, 0, vec![batches])
}

fn open_as(home: &Home, incarnation: u64) -> Partition {
    let spec = PartitionSpec {
        incarnation,
        ..spec()
    };
    let directory = home.folder.path().join(incarnation.to_string());
    let opened = Partition::open(&home.context, spec, &directory, &home.committer, false);
    let (partition, _) = opened.unwrap();
    partition.lead(1);
    partition
}

/// The partitions that were linked, in this order.
async fn linked_in_order(home: &Home, count: usize) -> Vec<u64> {
    let limit = tokio::time::Instant::now() + Duration::from_mins(1);
    let mut order = Vec::new();
    while order.len() < count {
        for event in home.context.events.poll(usize::MAX) {
            if let Event::Partition {
                change: PartitionChange::Linked,
                incarnation,
                ..
            } = event
                && !order.contains(&incarnation)
            {
                order.push(incarnation);
            }
        }
        assert!(tokio::time::Instant::now() < limit, "{order:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    order
}

#[tokio::test]
async fn a_small_epoch_waits_for_one_turn_of_large_ones_in_other_partitions() {
    let home = home_of_links();
    set_sinks(&home, 1, &[]);
    let partitions = [7, 8, 9].map(|incarnation| open_as(&home, incarnation));
    let rows = [
        staged_large(&partitions[0], 4),
        staged_large(&partitions[1], 5),
        staged(&partitions[2], 6, 0),
    ];
    // The links ask for their turns in this order.
    let _driven = driven(&home);
    set_sinks(&home, 10, &[&rows[0], &rows[1], &rows[2]]);
    let order = linked_in_order(&home, 3).await;
    assert_eq!(order[0], 9, "{order:?}");
    assert_eq!(values(&partitions[2]), all_rows(6));
    for partition in &partitions[..2] {
        assert_eq!(values(partition).len(), LARGE_BATCHES);
        assert_eq!(partition.reader().durable_end(), LARGE_BATCHES as u64);
    }
}

#[tokio::test]
async fn a_small_epoch_waits_for_one_turn_of_a_large_one_in_its_partition() {
    let home = home_of_links();
    set_sinks(&home, 1, &[]);
    let partition = home.led(spec());
    let rows = [staged_large(&partition, 4), staged(&partition, 5, 0)];
    let _driven = driven(&home);
    set_sinks(&home, 10, &[&rows[0], &rows[1]]);
    for sink in [4, 5] {
        reported(&home, PartitionChange::Linked, sink).await;
    }
    let stored = values(&partition);
    assert_eq!(rows_of(5, &stored), all_rows(5));
    assert_eq!(stored.len(), LARGE_BATCHES + ROWS);
    let before = stored.iter().position(|value| value.starts_with("sink 5"));
    assert_eq!(before, Some(4), "large rows before the small epoch");
}

#[tokio::test]
async fn what_is_in_the_log_is_counted_and_passed_in_turns() {
    let home = home_of_links();
    set_sinks(&home, 1, &[]);
    let partition = home.led(spec());
    let row = staged_large(&partition, 4);
    partition.close(EndReason::Closed).await;
    set_sinks(&home, 10, &[&row]);
    crash_after(&home, &spec(), &row, LARGE_BATCHES - 1);
    let _driven = driven(&home);
    let partition = home.led(spec());
    let (fields, _) = reported(&home, PartitionChange::Linked, 4).await;
    assert_eq!(fields["base_offset"], 0);
    let large = |value: &String| value.len() == BATCH_BYTES;
    let stored = values(&partition);
    assert_eq!(
        stored.iter().filter(|value| large(value)).count(),
        LARGE_BATCHES
    );
}
