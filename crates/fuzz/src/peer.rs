//! What arrives at the port for other brokers.
use bascule_record::SealedBatch;
use bascule_wire::peer::forward::FORWARD_RECORDS;
use bascule_wire::peer::frame::CONTROL_BYTES;
use bascule_wire::peer::{
    Fetch, FetchAnswer, Forward, ForwardAnswer, Frame, FrameType, Hello, HelloAnswer, Join,
    JoinAnswer, Preamble, RaftHead,
};
use bytes::Bytes;

/// A frame as it is, and with its length and checksum made right, so that its head is reached.
pub(crate) fn frames(data: &[u8]) {
    let Some((preamble, payload)) = data.split_first_chunk() else {
        return;
    };
    one(*preamble, payload);
    let mut repaired = *preamble;
    repaired[..4].copy_from_slice(&(payload.len() as u32 + 12).to_be_bytes());
    repaired[12..].copy_from_slice(&crc32c::crc32c(payload).to_be_bytes());
    one(repaired, payload);
}

fn one(preamble: [u8; Preamble::BYTES], payload: &[u8]) {
    let Ok(preamble) = Preamble::read(preamble, CONTROL_BYTES) else {
        return;
    };
    assert!((4..=CONTROL_BYTES - 12).contains(&preamble.payload_bytes));
    let Ok(frame) = preamble.with_payload(Bytes::copy_from_slice(payload)) else {
        return;
    };
    assert_eq!(4 + frame.head.len() + frame.body.len(), payload.len());
    match frame.kind {
        FrameType::Hello => hello(&frame),
        FrameType::Join => {
            if let Ok(join) = Join::read(&frame) {
                assert!((1..=255).contains(&join.broker.len()) && join.peers.len() == 32);
            }
        }
        FrameType::JoinAnswer => {
            if let Ok(answer) = JoinAnswer::read(&frame) {
                assert!(answer.text.len() <= 1024 && answer.directory_id.len() <= 64);
            }
        }
        FrameType::Fetch => {
            if let Ok(fetch) = Fetch::read(&frame) {
                assert!(fetch.wait_ms <= 500 && fetch.boot_epoch > 0);
                assert!(fetch.changed.iter().all(|slot| slot.incarnation > 0));
            }
        }
        FrameType::FetchAnswer => {
            if let Ok(answer) = FetchAnswer::read(&frame) {
                let bytes = answer.answers.iter().map(|one| u64::from(one.bytes));
                assert_eq!(bytes.sum::<u64>(), frame.body.len() as u64);
            }
        }
        FrameType::Forward => {
            if let Ok(forward) = Forward::read(&frame) {
                assert!(forward.request > 0 && forward.records as usize <= FORWARD_RECORDS);
                if let Ok(records) = forward.read_records(frame.body.clone()) {
                    assert_eq!(records.len(), forward.records as usize);
                }
                // What is stored of it, by the leader.
                let _ = SealedBatch::read_unplaced(&frame.body, 1 << 20);
            }
        }
        FrameType::ForwardAnswer => {
            if let Ok(answer) = ForwardAnswer::read(&frame) {
                assert!(answer.text.len() <= 1024);
            }
        }
        FrameType::HelloAnswer => {
            if let Ok(answer) = HelloAnswer::read(&frame) {
                assert!(answer.text.len() <= 1024 && answer.broker.len() <= 255);
            }
        }
        _ => {
            if let Ok(head) = RaftHead::read(&frame) {
                assert!(head.request > 0 && head.error.len() <= 1024);
                let bytes = Frame::write(frame.kind, &head, &frame.body);
                assert_eq!(read_again(&bytes), Some((head, frame.body)));
            }
        }
    }
}

/// What was written.
fn read_again(bytes: &[u8]) -> Option<(RaftHead, Bytes)> {
    let (preamble, payload) = bytes.split_first_chunk()?;
    let preamble = Preamble::read(*preamble, usize::MAX).ok()?;
    let frame = preamble
        .with_payload(Bytes::copy_from_slice(payload))
        .ok()?;
    Some((RaftHead::read(&frame).ok()?, frame.body))
}

fn hello(frame: &Frame) {
    let Ok(hello) = Hello::read(frame) else {
        return;
    };
    assert_eq!(hello.cluster_id.len(), 16);
    assert!((1..=255).contains(&hello.broker.len()) && hello.raft_id > 0);
    assert!(hello.oldest_version <= hello.newest_version);
}
