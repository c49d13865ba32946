//! The 128-bit number by which a record stores its message id.
use bascule_wire::jetstream::MESSAGE_ID;
use bytes::Bytes;

/// The hash of a message's first `Nats-Msg-Id`, as JetStream reads it; 0 without one.
pub(crate) fn message_id(headers: &[(Bytes, Bytes)]) -> u128 {
    headers
        .iter()
        .find(|(name, _)| &name[..] == MESSAGE_ID)
        .filter(|(_, id)| !id.is_empty())
        .map_or(0, |(_, id)| hash_message_id(id))
}

/// The stable 128-bit FNV-1a hash of a message id; never 0, which means "none".
pub(crate) fn hash_message_id(id: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    id.iter()
        .fold(BASIS, |hash, byte| {
            (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
        })
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> Vec<(Bytes, Bytes)> {
        vec![(Bytes::from_static(name.as_bytes()), value.to_owned().into())]
    }

    #[test]
    fn message_ids_are_hashed_as_published_vectors_say() {
        // FNV-1a 128 of "" is the offset basis; of "a" and "foobar" as in the reference test suite.
        assert_eq!(
            hash_message_id(b""),
            0x6c62_272e_07bb_0142_62b8_2175_6295_c58d
        );
        assert_eq!(
            hash_message_id(b"a"),
            0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964
        );
        assert_eq!(
            hash_message_id(b"foobar"),
            0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18
        );
        assert_eq!(
            message_id(&headers("Nats-Msg-Id", "a")),
            hash_message_id(b"a")
        );
        assert_eq!(message_id(&[]), 0);
        assert_eq!(message_id(&headers("Nats-Msg-Id", "")), 0);
    }
}
