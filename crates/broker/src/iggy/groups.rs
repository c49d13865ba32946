//! Consumer groups of topics: who is a member, and which partitions each member reads.
//!
//! A group is metadata of its topic, with other brokers its members too. Membership belongs to connections: joining again changes nothing, and
//! a connection that ends leaves all of its groups. Partition i goes to member i modulo their number, members in the
//! order of joining; a group poll without a partition turns through those of the member, one for each poll.
use super::connection::done;
use super::context::IggyContext;
use super::refused::Refused;
use super::resolve::{self, Path};
use super::shared_members;
use crate::user_caller::UserCaller;
use crate::user_rights::UserAction;
use crate::view::{StreamView, TopicGroup};
use bascule_wire::iggy::v1::{Group, GroupsReply, Identifier, Topic};
use bascule_wire::iggy::{Generation, Status, v2};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Groups that one connection may be a member of.
const MOST: usize = 1024;

/// One creation of a group: the index of the metadata entry that made it. Names of its topic may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupKey(u64);

impl GroupKey {
    pub(super) fn of(group: &TopicGroup) -> Self {
        Self(group.created)
    }

    /// Index of the entry.
    pub(super) fn created(self) -> u64 {
        self.0
    }
}

/// The members of all groups that are connections of this broker.
#[derive(Debug, Default)]
pub(crate) struct Members {
    groups: Mutex<HashMap<GroupKey, Assembly>>,
    /// Counts changes of all groups.
    round: AtomicU64,
    last_client: AtomicU32,
}

/// The members of a group.
#[derive(Debug, Default)]
struct Assembly {
    /// Numbers of connections, in the order of joining; never empty.
    members: Vec<u32>,
    /// Of the last change; grows with each.
    round: u64,
    /// The topic's, when a member asked last.
    partitions: usize,
}

impl Members {
    fn list(&self, group: GroupKey) -> Vec<u32> {
        let groups = self.groups.lock();
        let found = groups.get(&group).map(|group| group.members.clone());
        found.unwrap_or_default()
    }

    /// The round and the partitions of a member, of so many of the topic.
    ///
    /// # Errors
    /// 5006.
    fn sync(
        &self,
        group: GroupKey,
        client: u32,
        partitions: usize,
    ) -> Result<(u64, Vec<u32>), Status> {
        let mut groups = self.groups.lock();
        let found = groups.get_mut(&group);
        let found = found.ok_or(Status::ConsumerGroupMemberNotFound)?;
        if !found.members.contains(&client) {
            return Err(Status::ConsumerGroupMemberNotFound);
        }
        if found.partitions != partitions {
            (found.partitions, found.round) = (partitions, self.next_round());
        }
        let place = found.members.iter().position(|member| *member == client);
        let own = assigned(place, found.members.len(), partitions);
        Ok((found.round, own))
    }

    fn next_round(&self) -> u64 {
        self.round.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The groups of a connection.
    pub(super) fn of(&self, client: u32) -> HashSet<GroupKey> {
        let groups = self.groups.lock();
        let joined = groups
            .iter()
            .filter(|(_, group)| group.members.contains(&client));
        joined.map(|(group, _)| *group).collect()
    }

    fn join(&self, group: GroupKey, client: u32) {
        let mut groups = self.groups.lock();
        let group = groups.entry(group).or_default();
        if !group.members.contains(&client) {
            group.members.push(client);
            group.round = self.next_round();
        }
    }

    fn leave(&self, group: GroupKey, client: u32) {
        let mut groups = self.groups.lock();
        if let Some(found) = groups.get_mut(&group) {
            found.members.retain(|member| *member != client);
            found.round = self.next_round();
            if found.members.is_empty() {
                groups.remove(&group);
            }
        }
    }
}

/// The groups of one connection; it leaves them when this is dropped.
#[derive(Debug)]
pub(super) struct Memberships {
    context: Arc<IggyContext>,
    /// Number of the connection; 0 = a request without one.
    client: u32,
    joined: HashMap<GroupKey, Turn>,
}

/// Where a member is in the round of its partitions.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    next: usize,
    /// From 1; 0 = no poll yet.
    last: u32,
}

impl Memberships {
    pub(super) fn new(context: &Arc<IggyContext>) -> Self {
        let count = context.members.last_client.fetch_add(1, Ordering::Relaxed);
        Self {
            context: context.clone(),
            client: shared_members::number(context, count.wrapping_add(1)),
            joined: HashMap::new(),
        }
    }

    /// Those of a request without a connection of its own: none, and no number is taken.
    pub(super) fn none(context: &Arc<IggyContext>) -> Self {
        Self {
            context: context.clone(),
            client: 0,
            joined: HashMap::new(),
        }
    }

    /// Number of the connection; never 0.
    pub(super) fn client(&self) -> u32 {
        self.client
    }

    /// Leaves all groups; the connection may join again.
    pub(super) fn leave_all(&mut self) {
        for (group, _) in self.joined.drain() {
            self.context.members.leave(group, self.client);
            if shared_members::is_shared(&self.context) {
                shared_members::leave_later(&self.context, group, self.client);
            }
        }
    }

    /// The next partition of a member, from 1; `None` = it has none.
    ///
    /// # Errors
    /// 5006.
    pub(super) fn next(
        &mut self,
        topic: &StreamView,
        group: &TopicGroup,
    ) -> Result<Option<u32>, Status> {
        let (_, own) = self.assignment(topic, group)?;
        let turn = self
            .joined
            .get_mut(&GroupKey::of(group))
            .ok_or(Status::ConsumerGroupMemberNotFound)?;
        let Some(partition) = own.get(turn.next % own.len().max(1)).copied() else {
            return Ok(None);
        };
        turn.next = turn.next.wrapping_add(1);
        turn.last = partition;
        Ok(Some(partition))
    }

    /// Whether a member reads a partition, from 1.
    ///
    /// # Errors
    /// 5006; 5009.
    pub(super) fn check_owns(
        &self,
        topic: &StreamView,
        group: &TopicGroup,
        partition: u32,
    ) -> Result<(), Status> {
        let (_, own) = self.assignment(topic, group)?;
        if own.contains(&partition) {
            return Ok(());
        }
        Err(Status::ConsumerGroupPartitionNotOwned)
    }

    /// The round of the group, and the partitions of the connection, from 1.
    fn assignment(
        &self,
        topic: &StreamView,
        group: &TopicGroup,
    ) -> Result<(u64, Vec<u32>), Status> {
        let partitions = topic.partitions.len();
        if shared_members::is_shared(&self.context) {
            let place = shared_members::place(&self.context, group, self.client)
                .ok_or(Status::ConsumerGroupMemberNotFound)?;
            let own = assigned(Some(place), group.members.len(), partitions);
            return Ok((group.changed, own));
        }
        let members = &self.context.members;
        members.sync(GroupKey::of(group), self.client, partitions)
    }

    /// The topic of a member's request. A membership that ended with a run of this broker, while the connection went on, begins again.
    ///
    /// # Errors
    /// Those of [`resolve::topic`] and [`find`]; 1.
    pub(super) async fn topic(
        &self,
        path: Path<'_>,
        group: Identifier<'_>,
    ) -> Result<Arc<StreamView>, Refused> {
        let context = &*self.context;
        let topic = resolve::topic(&context.view.load(), path)?;
        let found = find(&topic, group)?;
        let is_lost = shared_members::is_shared(context)
            && self.joined.contains_key(&GroupKey::of(found))
            && shared_members::place(context, found, self.client).is_none();
        if !is_lost {
            return Ok(topic);
        }
        shared_members::join(context, &topic, found, self.client).await?;
        Ok(resolve::topic(&context.view.load(), path)?)
    }

    /// The partition that a member polled last, from 1.
    ///
    /// # Errors
    /// 5006, also before its first poll.
    pub(super) fn last(&self, group: &TopicGroup) -> Result<u32, Status> {
        let turn = self.joined.get(&GroupKey::of(group));
        turn.map(|turn| turn.last)
            .filter(|last| *last > 0)
            .ok_or(Status::ConsumerGroupMemberNotFound)
    }
}

impl Drop for Memberships {
    fn drop(&mut self) {
        self.leave_all();
    }
}

/// Partitions of the member at a place among so many, from 1, ascending.
fn assigned(place: Option<usize>, members: usize, partitions: usize) -> Vec<u32> {
    let Some(place) = place else {
        return Vec::new();
    };
    let numbers = (place..partitions).step_by(members.max(1));
    numbers.map(|number| number as u32 + 1).collect()
}

/// Numbers of the connections that are members, each at its broker, in the order of joining.
fn members(context: &IggyContext, group: &TopicGroup) -> Vec<u32> {
    if shared_members::is_shared(context) {
        return group.members.iter().map(|(_, client)| *client).collect();
    }
    context.members.list(GroupKey::of(group))
}

/// The group of a topic.
///
/// # Errors
/// 5000, 5003.
pub(super) fn find<'a>(
    topic: &'a StreamView,
    group: Identifier<'_>,
) -> Result<&'a TopicGroup, Status> {
    let (found, missing) = match group {
        Identifier::Number(number) => (
            topic
                .groups
                .iter()
                .find(|group| group.id + 1 == u64::from(number)),
            Status::ConsumerGroupIdNotFound,
        ),
        Identifier::Name(name) => (
            topic.groups.iter().find(|group| group.name == name),
            Status::ConsumerGroupNameNotFound,
        ),
    };
    found.ok_or(missing)
}

/// `GET_CONSUMER_GROUP`: a group with its members; empty when there is none.
///
/// # Errors
/// 3, 41.
pub(super) fn get(
    context: &IggyContext,
    caller: UserCaller<'_>,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let get = Group::read(payload, generation)?;
    let topic = match topic(context, caller, &get.topic) {
        Ok(topic) => topic,
        Err(Status::Unauthorized) => return Err(Status::Unauthorized.into()),
        Err(_) => return Ok(done()),
    };
    let Ok(group) = find(&topic, get.group) else {
        return Ok(done());
    };
    let members = members(context, group);
    let (count, partitions) = (members.len(), topic.partitions.len());
    let mut reply = GroupsReply::new(generation);
    show(&mut reply, &topic, group, count);
    for (place, member) in members.into_iter().enumerate() {
        reply.member(member, &assigned(Some(place), count, partitions));
    }
    Ok(reply.finish())
}

/// `GET_CONSUMER_GROUPS`: all groups of a topic, without their members.
///
/// # Errors
/// 3; those of [`resolve::topic`].
pub(super) fn list(
    context: &IggyContext,
    caller: UserCaller<'_>,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let topic = topic(context, caller, &Topic::read(payload, generation)?)?;
    let mut reply = GroupsReply::new(generation);
    for group in &topic.groups {
        let members = members(context, group).len();
        show(&mut reply, &topic, group, members);
    }
    Ok(reply.finish())
}

/// `JOIN_CONSUMER_GROUP`.
///
/// # Errors
/// 3; those of [`resolve::topic`] and [`find`]; 1 for a connection that is a member of too many groups.
pub(super) async fn join(
    context: &IggyContext,
    caller: UserCaller<'_>,
    own: &mut Memberships,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let join = Group::read(payload, generation)?;
    let topic = topic(context, caller, &join.topic)?;
    let group = find(&topic, join.group)?;
    let key = GroupKey::of(group);
    if own.joined.len() >= MOST && !own.joined.contains_key(&key) {
        return Err(Status::Error.into());
    }
    context.members.join(key, own.client);
    // Before it is asked for: whatever comes of that, the end of the connection ends it.
    own.joined.entry(key).or_default();
    if shared_members::is_shared(context) {
        shared_members::join(context, &topic, group, own.client).await?;
    }
    Ok(done())
}

/// `LEAVE_CONSUMER_GROUP`.
///
/// # Errors
/// 3; those of [`resolve::topic`] and [`find`]; 5006.
pub(super) async fn leave(
    context: &Arc<IggyContext>,
    caller: UserCaller<'_>,
    own: &mut Memberships,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let leave = Group::read(payload, generation)?;
    let topic = topic(context, caller, &leave.topic)?;
    let key = GroupKey::of(find(&topic, leave.group)?);
    own.joined
        .remove(&key)
        .ok_or(Status::ConsumerGroupMemberNotFound)?;
    context.members.leave(key, own.client);
    if shared_members::is_shared(context) {
        shared_members::leave(context, key, own.client).await;
    }
    Ok(done())
}

/// `SYNC_CONSUMER_GROUP`: the partitions of the connection, with a number that grows with each change of the group.
///
/// # Errors
/// 3; those of [`resolve::topic`] and [`find`]; 5006.
pub(super) async fn sync(
    caller: UserCaller<'_>,
    own: &Memberships,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let sync = Group::read(payload, generation)?;
    let topic = own.topic(path(caller, &sync.topic), sync.group).await?;
    let (round, partitions) = own.assignment(&topic, find(&topic, sync.group)?)?;
    Ok(v2::assignment_reply(round, &partitions))
}

fn topic(
    context: &IggyContext,
    caller: UserCaller<'_>,
    named: &Topic<'_>,
) -> Result<Arc<StreamView>, Status> {
    resolve::topic(&context.view.load(), path(caller, named))
}

fn path<'a>(caller: UserCaller<'a>, named: &Topic<'a>) -> Path<'a> {
    Path {
        stream: named.stream,
        topic: named.topic,
        caller,
        action: UserAction::ReadTopic,
    }
}

fn show(reply: &mut GroupsReply, topic: &StreamView, group: &TopicGroup, members: usize) {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let number = u32::try_from(group.id + 1).unwrap_or(u32::MAX);
    reply.group(
        number,
        count(topic.partitions.len()),
        count(members),
        &group.name,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_grows_with_every_change_of_a_group() {
        let (members, group) = (Members::default(), GroupKey(1));
        let sync = |client, partitions| members.sync(group, client, partitions);
        assert_eq!(sync(7, 3), Err(Status::ConsumerGroupMemberNotFound));
        members.join(group, 7);
        let (first, own) = sync(7, 3).unwrap();
        assert_eq!(own, [1, 2, 3]);
        members.join(group, 7);
        assert_eq!(sync(7, 3), Ok((first, own)));
        members.join(group, 5);
        assert_eq!(sync(6, 3), Err(Status::ConsumerGroupMemberNotFound));
        let (second, own) = sync(5, 3).unwrap();
        assert_eq!(own, [2]);
        let (third, own) = sync(5, 4).unwrap();
        assert_eq!(own, [2, 4]);
        members.leave(group, 7);
        let (fourth, own) = sync(5, 4).unwrap();
        assert_eq!(own, [1, 2, 3, 4]);
        members.leave(group, 5);
        members.join(group, 5);
        let (fifth, _) = sync(5, 4).unwrap();
        assert!(first < second && second < third && third < fourth && fourth < fifth);
    }

    #[test]
    fn partitions_are_dealt_out_in_the_order_of_joining() {
        assert_eq!(assigned(Some(0), 1, 3), [1, 2, 3]);
        assert_eq!(assigned(Some(0), 2, 3), [1, 3]);
        assert_eq!(assigned(Some(1), 2, 3), [2]);
        assert!(assigned(Some(3), 4, 3).is_empty());
        assert!(assigned(None, 1, 3).is_empty());
        assert!(assigned(Some(0), 1, 0).is_empty());
    }
}
