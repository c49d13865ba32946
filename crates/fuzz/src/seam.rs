//! JSON documents of the seam, and snapshot files of the metadata log.
use crate::input::Input;

/// Every document that Python hands over; the first byte chooses.
pub(crate) fn documents(data: &[u8]) {
    if let Some((kind, body)) = data.split_first() {
        bascule_broker::fuzz::seam_document(*kind, body);
    }
}

/// A snapshot file, as it is and with the checksum of its head recomputed.
pub(crate) fn metadata_snapshot(data: &[u8]) {
    let mut input = Input::new(data.get(8..).unwrap_or_default());
    let index = input.u64();
    let state = bascule_broker::fuzz::metadata_snapshot(index, data);
    assert!(state.is_none_or(|length| length + 32 == data.len()));
    let mut bytes = data.to_vec();
    let Some(body) = data.get(32..) else { return };
    let fields = [(24, crc32c::crc32c(body)), (16, body.len() as u32), (20, 0)];
    for (at, value) in fields {
        put(&mut bytes, at, value);
    }
    let head = crc32c::crc32c(bytes.get(..28).unwrap_or_default());
    put(&mut bytes, 28, head);
    bascule_broker::fuzz::metadata_snapshot(index, &bytes);
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    for (to, from) in bytes.iter_mut().skip(at).zip(value.to_le_bytes()) {
        *to = from;
    }
}
