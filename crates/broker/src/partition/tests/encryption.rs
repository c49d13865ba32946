//! Encrypted partitions: round trip, a key that is missing, a key that comes back.
use super::*;
use crate::encryption::{DataKeySpec, EncryptionSettings, MasterKeyStore};

pub(super) fn master_keys(home: &Home, ids: &[&str]) -> MasterKeyStore {
    let file = |id: &str| {
        let path = home.folder.path().join(id);
        // 32 bytes of 0, of 4 in base64: any key will do.
        std::fs::write(&path, "A".repeat(43) + "=").unwrap();
        (id.to_owned(), path)
    };
    let settings = EncryptionSettings {
        keys: ids.iter().map(|id| file(id)).collect(),
        current: ids.first().copied().unwrap_or_default().to_owned(),
        ..EncryptionSettings::default()
    };
    MasterKeyStore::load(&settings).unwrap()
}

pub(super) fn home_with(ids: &[&str]) -> Home {
    let mut home = home();
    home.master_keys(master_keys(&home, ids));
    home
}

pub(super) fn encrypted(home: &Home) -> PartitionSpec {
    let (master, wrapped) = home.context.master_keys.new_data_key(1).unwrap();
    let number = 1;
    PartitionSpec {
        data_keys: vec![DataKeySpec {
            number,
            master,
            wrapped,
        }],
        ..spec()
    }
}

fn first_batch(partition: &Partition) -> Bytes {
    let mut cursor = partition.reader().cursor(0);
    cursor.next(1, 1, ReadMode::Blocking).unwrap().unwrap()
}

#[tokio::test]
async fn records_are_stored_encrypted_and_opened_for_readers() {
    let home = home_with(&["a"]);
    let partition = home.led(encrypted(&home));
    let outcome = put(&partition, Payload::Records(vec![record("planted")])).await;
    assert_eq!(outcome.unwrap().rejected.len(), 0);
    let bytes = first_batch(&partition);
    assert!(!bytes.windows(7).any(|part| part == b"planted"));
    let batch = partition.reader().open(&bytes).unwrap();
    assert_eq!(batch.value(0), Some(&b"planted"[..]));
    assert!(Batch::read(&bytes).unwrap_err().is_locked());
    partition.close(EndReason::Closed).await;
}

#[tokio::test]
async fn without_the_master_key_appends_are_refused_one_by_one_and_nothing_is_lost() {
    let mut home = home_with(&["a"]);
    let spec = encrypted(&home);
    let partition = home.led(spec.clone());
    put(&partition, Payload::Records(vec![record("planted")]))
        .await
        .unwrap();
    partition.close(EndReason::Closed).await;

    home.context = home_with(&["b"]).context;
    let partition = home.led(spec.clone());
    let records = vec![record("x"), record("y")];
    let outcome = put(&partition, Payload::Records(records)).await.unwrap();
    let reasons: Vec<_> = outcome
        .rejected
        .iter()
        .map(|one| one.reason.clone())
        .collect();
    assert_eq!(
        reasons,
        [RejectReason::Encryption, RejectReason::Encryption]
    );
    assert_eq!(outcome.count, 0);
    let refused = put(&partition, Payload::Sealed(sealed(0, &["z"]))).await;
    let Err(AppendError::Encryption(text)) = refused else {
        panic!("{refused:?}")
    };
    assert!(
        text.contains("master key \"a\" is not configured"),
        "{text}"
    );
    assert!(partition.failure().is_none());
    assert_eq!(home.changes(PartitionChange::KeyUnavailable), 1);
    let error = partition
        .reader()
        .open(&first_batch(&partition))
        .unwrap_err();
    assert!(error.is_locked(), "{error}");
    partition.close(EndReason::Closed).await;

    home.context = home_with(&["b", "a"]).context;
    let partition = home.led(spec);
    put(&partition, Payload::Records(vec![record("again")]))
        .await
        .unwrap();
    let batch = partition.reader().open(&first_batch(&partition)).unwrap();
    assert_eq!(batch.value(0), Some(&b"planted"[..]));
    assert_eq!(partition.reader().log_end(), 2);
    partition.close(EndReason::Closed).await;
}
