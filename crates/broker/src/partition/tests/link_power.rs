//! A power cut between the decision of an epoch and its link: what the log had not synced is gone.
use super::links::*;
use super::*;
use std::fs;
use std::path::Path;

/// Copies the files of a partition, those of `stage` excepted: what the disk has while all that was appended is synced.
fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// What a power cut leaves: the files as they were in `disk`, and the pieces, which are synced.
fn cut_power(partition: &Path, disk: &Path) {
    for entry in fs::read_dir(partition).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    copy_files(disk, partition);
}

async fn synced(partition: &Partition) {
    let partition = partition.clone();
    let syncing = tokio::task::spawn_blocking(move || partition.sync_linked());
    syncing.await.unwrap().unwrap();
}

/// The records after the last sync are more than the epoch has, so that its rows all lie below the log end of the confirmation.
#[tokio::test]
async fn a_power_cut_before_the_link_stores_each_row_once() {
    for appended in [1, BATCHES] {
        let home = home_of_links();
        set_sinks(&home, 1, &[]);
        let partition = home.led(memory());
        put(&partition, records(&["kept"])).await.unwrap();
        synced(&partition).await;
        let disk = home.folder.path().join("disk");
        copy_files(&home.directory(), &disk);
        put(&partition, records(&["lost"; 2 * ROWS])).await.unwrap();
        let from = partition.link_floor();
        let row = staged(&partition, 4, from);
        partition.close(EndReason::Closed).await;
        cut_power(&home.directory(), &disk);

        set_sinks(&home, 10, &[&row]);
        // The link appends below the old end, and the broker is killed before it reports.
        crash_after(&home, &memory(), &row, appended);
        let _driven = driven(&home);
        let partition = home.led(memory());
        let (fields, _) = reported(&home, PartitionChange::Linked, 4).await;
        assert_eq!(fields["base_offset"], 1);
        assert_linked_once(&partition, appended);
        partition.close(EndReason::Closed).await;
    }
}

#[tokio::test]
async fn an_epoch_is_linked_from_the_synced_end_on_in_class_memory_and_disk() {
    let home = home_of_links();
    set_sinks(&home, 1, &[]);
    let partition = home.led(memory());
    put(&partition, records(&["a"])).await.unwrap();
    synced(&partition).await;
    assert_eq!(partition.link_floor(), 1);
    put(&partition, records(&["b", "c"])).await.unwrap();
    let reader = partition.reader();
    assert_eq!(reader.high_watermark(), 3);
    assert!(partition.link_floor() <= reader.durable_end());
    synced(&partition).await;
    assert_eq!(partition.link_floor(), 3);
    partition.close(EndReason::Closed).await;
    let partition = home.led(spec());
    put(&partition, records(&["d"])).await.unwrap();
    assert_eq!(partition.link_floor(), 4, "an answered publish is synced");
}
