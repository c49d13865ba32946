//! The mark of an idempotent producer's batch on its first record.
use bascule_record::Producer;
use bascule_wire::liftbridge::publish::{ProducerBatch, PublishView};

#[test]
fn what_cannot_be_a_producers_batch_differs_from_none() {
    let producer = Producer {
        id: 7,
        epoch: 1,
        base_sequence: 2,
    };
    let batch = ProducerBatch {
        producer,
        records: 3,
    };
    let begun = |bytes: &[u8]| {
        let view = PublishView {
            producer_batch: bytes.to_vec().into(),
            ..PublishView::default()
        };
        view.begun_batch()
    };
    assert_eq!(begun(&[]), Some(None));
    assert_eq!(begun(&batch.to_bytes()), Some(Some(batch)));
    let nobody = ProducerBatch {
        producer: Producer { id: 0, ..producer },
        records: 0,
    };
    assert_eq!(begun(&nobody.to_bytes()), Some(None));
    for records in [0, ProducerBatch::MAX_RECORDS + 1] {
        assert_eq!(
            begun(&ProducerBatch { producer, records }.to_bytes()),
            None,
            "{records} records"
        );
    }
    for length in [1, 19, 21] {
        assert_eq!(begun(&vec![1; length]), None, "{length} bytes");
    }
}
