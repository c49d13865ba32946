//! Connections as clients see them: `GET_ME`, `GET_CLIENT`, `GET_CLIENTS`. Those of this broker.
use super::context::IggyContext;
use super::groups::GroupKey;
use super::refused::Refused;
use super::resolve;
use bascule_wire::iggy::v1::{ClientsReply, Transport};
use bascule_wire::iggy::{Generation, Status};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// All connections, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<BTreeMap<u32, Client>>);

#[derive(Clone, Copy, Debug)]
struct Client {
    transport: Transport,
    address: Option<SocketAddr>,
    /// Number of the user who has logged in, from 1; 0 = nobody has.
    user: u32,
}

impl Clients {
    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.0.lock().len()).unwrap_or(u32::MAX)
    }

    fn list(&self) -> Vec<(u32, Client)> {
        let clients = self.0.lock();
        clients
            .iter()
            .map(|(number, client)| (*number, *client))
            .collect()
    }

    fn find(&self, number: u32) -> Option<Client> {
        self.0.lock().get(&number).copied()
    }
}

/// A connection is listed until this is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    clients: Arc<Clients>,
    number: u32,
}

impl Listed {
    pub(super) fn new(
        clients: &Arc<Clients>,
        number: u32,
        transport: Transport,
        address: Option<SocketAddr>,
    ) -> Self {
        let client = Client {
            transport,
            address,
            user: 0,
        };
        clients.0.lock().insert(number, client);
        Self {
            clients: clients.clone(),
            number,
        }
    }

    /// The user of the connection from now on: its number from 1, 0 = none.
    pub(super) fn set_user(&self, user: u32) {
        if let Some(client) = self.clients.0.lock().get_mut(&self.number) {
            client.user = user;
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.clients.0.lock().remove(&self.number);
    }
}

/// `GET_ME`: the connection itself.
///
/// # Errors
/// 3.
pub(super) fn me(
    context: &IggyContext,
    own: u32,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    if !payload.is_empty() {
        return Err(Status::InvalidCommand.into());
    }
    Ok(details(context, own, generation))
}

/// `GET_CLIENT`; empty when there is none of this number.
///
/// # Errors
/// 3; 101 for number 0.
pub(super) fn get(
    context: &IggyContext,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let number = payload.try_into().map(u32::from_le_bytes);
    match number.map_err(|_| Status::InvalidCommand)? {
        0 => Err(Status::InvalidClientId.into()),
        number => Ok(details(context, number, generation)),
    }
}

/// `GET_CLIENTS`: all, in the order of their numbers.
///
/// # Errors
/// 3.
pub(super) fn list(
    context: &IggyContext,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    if !payload.is_empty() {
        return Err(Status::InvalidCommand.into());
    }
    let mut reply = ClientsReply::new(generation);
    for (number, client) in context.clients.list() {
        let groups = context.members.of(number).len();
        show(&mut reply, number, client, groups);
    }
    Ok(reply.finish())
}

fn details(context: &IggyContext, number: u32, generation: Generation) -> Bytes {
    let mut reply = ClientsReply::new(generation);
    if let Some(client) = context.clients.find(number) {
        let groups = places(context, &context.members.of(number));
        show(&mut reply, number, client, groups.len());
        for [stream, topic, group] in groups {
            reply.group(stream, topic, group);
        }
    }
    reply.finish()
}

fn show(reply: &mut ClientsReply, number: u32, client: Client, groups: usize) {
    let address = client
        .address
        .map_or_else(String::new, |peer| peer.to_string());
    let groups = u32::try_from(groups).unwrap_or(u32::MAX);
    reply.client(number, client.user, client.transport, &address, groups);
}

/// Numbers from 1 of stream, topic and group of those that exist.
fn places(context: &IggyContext, joined: &HashSet<GroupKey>) -> Vec<[u32; 3]> {
    if joined.is_empty() {
        return Vec::new();
    }
    let view = context.view.load();
    let number = |id: u64| u32::try_from(id + 1).unwrap_or(u32::MAX);
    let mut places = Vec::new();
    for topic in view.streams() {
        let Some(stream) = view.numbers.id(&topic.namespace) else {
            continue;
        };
        let own = topic
            .groups
            .iter()
            .filter(|group| joined.contains(&GroupKey::of(group)));
        places.extend(own.map(|group| {
            [
                resolve::stream_number(stream),
                number(topic.id),
                number(group.id),
            ]
        }));
    }
    places.sort_unstable();
    places
}
