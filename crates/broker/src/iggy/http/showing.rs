//! JSON of replies about offsets, groups and connections.
use bascule_wire::iggy::Generation;
use bascule_wire::iggy::v1::Transport;
use serde::Serialize;

/// The fields of a reply that are left.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Option<u128> {
        self.take(16)?.try_into().ok().map(u128::from_le_bytes)
    }

    fn text(&mut self, bytes: usize) -> Option<String> {
        let taken = self.take(bytes)?;
        Some(String::from_utf8_lossy(taken).into_owned())
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }
}

/// `GET_CONSUMER_OFFSET`.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the JSON")]
pub(super) struct Offset {
    partition_id: u32,
    current_offset: u64,
    stored_offset: u64,
}

impl Offset {
    pub(super) fn read(mut from: Fields<'_>) -> Option<Self> {
        Some(Self {
            partition_id: from.u32()?,
            current_offset: from.u64()?,
            stored_offset: from.u64()?,
        })
    }
}

/// A group, and its members where one group was asked for.
#[derive(Serialize)]
pub(super) struct Group {
    id: u32,
    name: String,
    partitions_count: u32,
    members_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Vec<Member>>,
}

#[derive(Serialize)]
struct Member {
    id: u32,
    partitions_count: u32,
    partitions: Vec<u32>,
}

impl Group {
    fn head(from: &mut Fields<'_>) -> Option<Self> {
        let (id, partitions_count, members_count) = (from.u32()?, from.u32()?, from.u32()?);
        let bytes = usize::from(from.u8()?);
        Some(Self {
            id,
            name: from.text(bytes)?,
            partitions_count,
            members_count,
            members: None,
        })
    }

    /// Those of a list.
    pub(super) fn list(mut from: Fields<'_>) -> Option<Vec<Self>> {
        let mut found = Vec::new();
        while !from.0.is_empty() {
            found.push(Self::head(&mut from)?);
        }
        Some(found)
    }

    /// One with its members.
    pub(super) fn one(mut from: Fields<'_>) -> Option<Self> {
        let mut group = Self::head(&mut from)?;
        let mut members = Vec::new();
        while !from.0.is_empty() {
            let (id, partitions_count) = (from.u32()?, from.u32()?);
            let partitions: Option<Vec<u32>> = (0..partitions_count).map(|_| from.u32()).collect();
            members.push(Member {
                id,
                partitions_count,
                partitions: partitions?,
            });
        }
        group.members = Some(members);
        Some(group)
    }
}

/// A connection, and its groups where one was asked for.
#[derive(Serialize)]
pub(super) struct Connected {
    client_id: u32,
    user_id: Option<u32>,
    address: String,
    transport: &'static str,
    consumer_groups_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer_groups: Option<Vec<Place>>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the JSON")]
struct Place {
    stream_id: u32,
    topic_id: u32,
    group_id: u32,
}

impl Connected {
    /// From a reply whose numbers count from 1; 0 = nobody has logged in.
    fn head(from: &mut Fields<'_>, generation: Generation) -> Option<Self> {
        let (client_id, user) = (from.u32()?, from.u32()?);
        let transport = Transport::of(from.u8()?)?;
        let bytes = from.u32()? as usize;
        Some(Self {
            client_id,
            user_id: (user > 0).then(|| generation.show(user)),
            address: from.text(bytes)?,
            transport: transport.name(),
            consumer_groups_count: from.u32()?,
            consumer_groups: None,
        })
    }

    /// Those of a list.
    pub(super) fn list(mut from: Fields<'_>, generation: Generation) -> Option<Vec<Self>> {
        let mut found = Vec::new();
        while !from.0.is_empty() {
            found.push(Self::head(&mut from, generation)?);
        }
        Some(found)
    }

    /// One with its groups.
    pub(super) fn one(mut from: Fields<'_>, generation: Generation) -> Option<Self> {
        let mut connected = Self::head(&mut from, generation)?;
        let mut groups = Vec::new();
        while !from.0.is_empty() {
            groups.push(Place {
                stream_id: generation.show(from.u32()?),
                topic_id: generation.show(from.u32()?),
                group_id: generation.show(from.u32()?),
            });
        }
        connected.consumer_groups = Some(groups);
        Some(connected)
    }
}
