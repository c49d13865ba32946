//! The reply that shows connections.
use crate::iggy::Generation;
use crate::iggy::frame::{REPLY_HEAD_BYTES, framed};
use bytes::{BufMut, Bytes, BytesMut};

/// What a client is connected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// Frames back to back, with or without TLS.
    Tcp = 1,
    /// A stream for each request.
    Quic = 2,
}

impl Transport {
    /// The transport of this number; `None` = clients of another one are not served.
    pub fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Tcp),
            2 => Some(Self::Quic),
            _ => None,
        }
    }

    /// As JSON shows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Quic => "QUIC",
        }
    }
}

/// The reply that shows connections, being written: the head of its frame included.
#[derive(Debug)]
pub struct ClientsReply {
    out: BytesMut,
    generation: Generation,
}

impl ClientsReply {
    /// Number of the command that shows the own connection.
    pub const ME: u32 = 20;
    /// Number of the command that shows one connection.
    pub const GET: u32 = 21;
    /// Number of the command that lists all.
    pub const LIST: u32 = 22;

    /// A reply without connections.
    pub fn new(generation: Generation) -> Self {
        let mut out = BytesMut::new();
        out.put_bytes(0, REPLY_HEAD_BYTES);
        Self { out, generation }
    }

    /// Adds a connection. `number` is the same in every generation; `user`: from 1, 0 = nobody has logged in.
    pub fn client(
        &mut self,
        number: u32,
        user: u32,
        transport: Transport,
        address: &str,
        groups: u32,
    ) {
        self.out.put_u32_le(number);
        self.out.put_u32_le(self.generation.show(user));
        self.out.put_u8(transport as u8);
        self.out
            .put_u32_le(u32::try_from(address.len()).unwrap_or(u32::MAX));
        self.out.put_slice(address.as_bytes());
        self.out.put_u32_le(groups);
    }

    /// Adds a group of the one connection; numbers from 1.
    pub fn group(&mut self, stream: u32, topic: u32, group: u32) {
        for number in [stream, topic, group] {
            self.out.put_u32_le(self.generation.show(number));
        }
    }

    /// The whole frame.
    pub fn finish(self) -> Bytes {
        framed(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_and_its_groups_lie_as_clients_read_them() {
        let shown = |generation, transport| {
            let mut reply = ClientsReply::new(generation);
            reply.client(7, 1, transport, "h:1", 1);
            reply.group(2, 3, 4);
            reply.finish().to_vec()
        };
        let expected = b"\0\0\0\0\x20\0\0\0\x07\0\0\0\x01\0\0\0\x01\x03\0\0\0h:1\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0";
        assert_eq!(shown(Generation::V1, Transport::Tcp), expected);
        let expected = b"\0\0\0\0\x20\0\0\0\x07\0\0\0\0\0\0\0\x02\x03\0\0\0h:1\x01\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0";
        assert_eq!(shown(Generation::Sdk9, Transport::Quic), expected);
    }

    #[test]
    fn every_transport_has_one_number() {
        for number in 0..=u8::MAX {
            let found = Transport::of(number);
            assert!(found.is_none_or(|transport| transport as u8 == number));
        }
        let served = [1, 2].map(|number| Transport::of(number).map(Transport::name));
        assert_eq!(served, [Some("TCP"), Some("QUIC")]);
    }
}
