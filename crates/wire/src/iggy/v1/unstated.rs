//! The generation of a client that stated none: a login by token has no version. Later frames decide, as far as they differ.
use super::{DeleteOffset, GetOffset, Poll, Send, SendError, StoreOffset};
use crate::iggy::Generation;

const GET_CLUSTER_METADATA: u32 = 12;
const CREATE_STREAM: u32 = 202;
/// Those with heads of 8 bytes, in the order in which they are tried.
const CANDIDATES: [Generation; 4] = [
    Generation::V1,
    Generation::Sdk7,
    Generation::Sdk8,
    Generation::Sdk9,
];

/// The generation of a connection that has stated none, after one more request: `now` unless the request is one that a client
/// of it cannot send and one of another can.
///
/// What distinguishes them: only SDK 0.8 and later ask for the cluster, create streams without a number and have a flag before
/// partitions; the heads of messages that are sent have another size in each. A client that sends nothing looks like
/// the older one with the same requests: SDK 0.7 like 0.6, and SDK 0.9 like 0.8.
pub fn generation_after(now: Generation, code: u32, payload: &[u8]) -> Generation {
    let fits = |generation: &Generation| fits(*generation, code, payload);
    if fits(&now) {
        return now;
    }
    CANDIDATES.into_iter().find(fits).unwrap_or(now)
}

/// Whether a client of the generation may have sent it.
fn fits(generation: Generation, code: u32, payload: &[u8]) -> bool {
    let counts_from_0 = generation.first_number() == 0;
    match code {
        GET_CLUSTER_METADATA => counts_from_0,
        CREATE_STREAM => match payload.split_first() {
            Some((length, name)) => (usize::from(*length) == name.len()) == counts_from_0,
            None => true,
        },
        Poll::CODE => Poll::read(payload, generation).is_ok(),
        GetOffset::CODE => GetOffset::read(payload, generation).is_ok(),
        StoreOffset::CODE => StoreOffset::read(payload, generation).is_ok(),
        DeleteOffset::CODE => DeleteOffset::read(payload, generation).is_ok(),
        Send::CODE => !matches!(
            Send::read(payload, generation),
            Err(SendError::Malformed(_))
        ),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iggy::RequestHead;
    use serde_json::Value;

    /// Code and payload of what a client was recorded to send, without its login.
    fn recorded(vectors: &str, client: &str) -> Vec<(u32, Vec<u8>)> {
        let vectors: Value = serde_json::from_str(vectors).unwrap();
        let unhex = |text: &str| -> Vec<u8> {
            let bytes = (0..text.len() / 2).map(|i| &text[2 * i..2 * i + 2]);
            bytes
                .map(|byte| u8::from_str_radix(byte, 16).unwrap())
                .collect()
        };
        let of_client = |entry: &&Value| client.is_empty() || entry["client"] == client;
        let captures = vectors["captures"].as_array().unwrap();
        captures
            .iter()
            .filter(of_client)
            .map(|entry| unhex(entry["request_hex"].as_str().unwrap()))
            .map(|frame| {
                let head = RequestHead::read(frame[..8].try_into().unwrap(), 1 << 20).unwrap();
                (head.code, frame[8..].to_vec())
            })
            .filter(|(code, _)| *code != 38)
            .collect()
    }

    #[test]
    fn recorded_requests_lead_to_the_generation_of_their_client() {
        let (v1, v1b) = (
            include_str!("../../../../../specs/vectors/iggy/v1.json"),
            include_str!("../../../../../specs/vectors/iggy/v1b.json"),
        );
        for (vectors, client, expected) in [
            (v1, "", Generation::V1),
            (v1b, "apache-iggy 0.5.0", Generation::Sdk7),
            (v1b, "apache-iggy 0.6.0", Generation::Sdk8),
            (v1b, "apache-iggy 0.7.0", Generation::Sdk9),
            (v1b, "apache-iggy 0.8.0", Generation::Sdk9),
        ] {
            let requests = recorded(vectors, client);
            assert!(requests.len() > 5, "{client}");
            let mut now = Generation::V1;
            for (code, payload) in &requests {
                now = generation_after(now, *code, payload);
                assert!(fits(now, *code, payload), "{client} {code}");
            }
            assert_eq!(now, expected, "{client}");
        }
    }

    #[test]
    fn a_request_that_nobody_sends_changes_nothing() {
        for now in CANDIDATES {
            assert_eq!(generation_after(now, 100, b"\x07"), now);
            assert_eq!(generation_after(now, 101, b""), now);
            assert_eq!(generation_after(now, 1, b""), now);
        }
        assert_eq!(
            generation_after(Generation::Sdk9, 12, b""),
            Generation::Sdk9
        );
        assert_eq!(generation_after(Generation::V1, 12, b""), Generation::Sdk8);
    }
}
