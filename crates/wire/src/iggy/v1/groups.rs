//! Groups of a topic: what names them, and how they are shown.
use super::identifiers::Identifier;
use crate::iggy::frame::{REPLY_HEAD_BYTES, framed};
use crate::iggy::reader::{Reader, whole};
use crate::iggy::{Generation, Malformed};
use bytes::{BufMut, Bytes, BytesMut};

/// `GET_CONSUMER_GROUPS`, 601: a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topic<'a> {
    /// Stream.
    pub stream: Identifier<'a>,
    /// Topic.
    pub topic: Identifier<'a>,
}
impl<'a> Topic<'a> {
    /// Number of the command that lists the groups of a topic.
    pub const LIST: u32 = 601;

    /// Reads a whole payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(payload: &'a [u8], generation: Generation) -> Result<Self, Malformed> {
        whole(payload, generation, Self::fields)
    }

    fn fields(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            stream: Identifier::read(from, "the stream")?,
            topic: Identifier::read(from, "the topic")?,
        })
    }
}

/// Commands about one group that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Its topic.
    pub topic: Topic<'a>,
    /// Its number or name.
    pub group: Identifier<'a>,
}
impl<'a> Group<'a> {
    /// Number of the command that shows a group.
    pub const GET: u32 = 600;
    /// Number of the command by which a connection becomes a member.
    pub const JOIN: u32 = 604;
    /// Number of the command by which it ends that.
    pub const LEAVE: u32 = 605;

    /// Reads a whole payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(payload: &'a [u8], generation: Generation) -> Result<Self, Malformed> {
        whole(payload, generation, |from| {
            Ok(Self {
                topic: Topic::fields(from)?,
                group: Identifier::read(from, "the group")?,
            })
        })
    }
}

/// The reply that shows groups, being written: the head of its frame included.
#[derive(Debug)]
pub struct GroupsReply {
    out: BytesMut,
    generation: Generation,
}

impl GroupsReply {
    /// A reply without groups.
    pub fn new(generation: Generation) -> Self {
        let mut out = BytesMut::new();
        out.put_bytes(0, REPLY_HEAD_BYTES);
        Self { out, generation }
    }

    /// Adds a group. `number`: from 1. `name`: 1 to 255 bytes; a longer one is cut.
    pub fn group(&mut self, number: u32, partitions: u32, members: u32, name: &str) {
        let name = &name.as_bytes()[..name.floor_char_boundary(usize::from(u8::MAX))];
        self.out.put_u32_le(self.generation.show(number));
        self.out.put_u32_le(partitions);
        self.out.put_u32_le(members);
        self.out.put_u8(name.len() as u8);
        self.out.put_slice(name);
    }

    /// Adds a member of the one group. `partitions`: from 1.
    pub fn member(&mut self, client: u32, partitions: &[u32]) {
        self.out.put_u32_le(client);
        self.out
            .put_u32_le(u32::try_from(partitions.len()).unwrap_or(u32::MAX));
        for partition in partitions {
            self.out.put_u32_le(self.generation.show(*partition));
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
    fn a_group_is_read_whole_and_cut_nowhere() {
        let payload = b"\x01\x04\x07\0\0\0\x02\x01t\x02\x01g";
        let read = Group::read(payload, Generation::V1).unwrap();
        assert_eq!(read.topic.stream, Identifier::Number(7));
        assert_eq!(
            (read.topic.topic, read.group),
            (Identifier::Name("t"), Identifier::Name("g"))
        );
        for length in 0..payload.len() {
            assert!(
                Group::read(&payload[..length], Generation::V1).is_err(),
                "{length}"
            );
        }
        assert!(
            Topic::read(payload, Generation::V1).is_err(),
            "the group is one field too many"
        );
        assert!(Topic::read(&payload[..9], Generation::V1).is_ok());
    }

    #[test]
    fn a_reply_has_its_groups_and_members() {
        let mut reply = GroupsReply::new(Generation::V1);
        reply.group(3, 4, 1, "g");
        reply.member(9, &[1, 2]);
        let expected = b"\0\0\0\0\x1e\0\0\0\x03\0\0\0\x04\0\0\0\x01\0\0\0\x01g\x09\0\0\0\x02\0\0\0\x01\0\0\0\x02\0\0\0";
        assert_eq!(&reply.finish()[..], expected);
    }
}
