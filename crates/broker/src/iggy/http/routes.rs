//! Requests that are answered here: about messages, stored offsets, groups of a topic, and connections.
use super::client::{Asked, Session};
use super::payload::{Payload, Query, default_consumer, layout};
use super::polled;
use super::problem::{JSON, Problem, Reply, empty, json, reply};
use super::sending;
use super::showing::{Connected, Fields, Group, Offset};
use crate::admission::Identity;
use crate::iggy::context::IggyContext;
use crate::iggy::groups::{self, Memberships};
use crate::iggy::{clients, offsets, poll, send};
use crate::user_caller::UserCaller;
use crate::user_rights::UserAction;
use bascule_wire::iggy::{Generation, REPLY_HEAD_BYTES, Status};
use bytes::{BufMut, Bytes};
use http::header::HeaderValue;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json as value};
use std::sync::Arc;

/// How many messages a poll returns that does not say.
const COUNT: u32 = 10;
/// What v2 says about a send that was answered: it is committed.
const DURABILITY: (&str, HeaderValue) = ("iggy-durability", HeaderValue::from_static("replicated"));

/// A request to be answered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Send(Topic<'a>),
    Poll(Topic<'a>),
    /// Partition, and whether the file is to be synced.
    Flush(Topic<'a>, &'a str, &'a str),
    GetOffset(Topic<'a>),
    StoreOffset(Topic<'a>),
    /// Whose.
    DeleteOffset(Topic<'a>, &'a str),
    Groups(Topic<'a>),
    Group(Topic<'a>, &'a str),
    Clients,
    Client(&'a str),
}

/// A topic in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Topic<'a> {
    stream: &'a str,
    topic: &'a str,
}

impl<'a> Route<'a> {
    /// `None`: the control plane decides about the request.
    pub(super) fn of(method: &Method, path: &'a [&'a str]) -> Option<Self> {
        let (kind, topic, rest) = match path {
            ["streams", stream, "topics", topic, kind, rest @ ..] => {
                (*kind, Topic { stream, topic }, rest)
            }
            ["clients"] if method == Method::GET => return Some(Self::Clients),
            ["clients", number] if method == Method::GET => return Some(Self::Client(number)),
            _ => return None,
        };
        Some(match (method.as_str(), kind, rest) {
            ("POST", "messages", []) => Self::Send(topic),
            ("GET", "messages", []) => Self::Poll(topic),
            ("GET", "messages", ["flush", partition, fsync]) => {
                Self::Flush(topic, partition, fsync)
            }
            ("GET", "consumer-offsets", []) => Self::GetOffset(topic),
            ("PUT", "consumer-offsets", []) => Self::StoreOffset(topic),
            ("DELETE", "consumer-offsets", [consumer]) => Self::DeleteOffset(topic, consumer),
            ("GET", "consumer-groups", []) => Self::Groups(topic),
            ("GET", "consumer-groups", [group]) => Self::Group(topic, group),
            _ => return None,
        })
    }
}

impl Topic<'_> {
    fn put(&self, payload: &mut Payload) -> Result<(), Problem> {
        payload.identifier(self.stream)?;
        payload.identifier(self.topic)
    }
}

/// The body of a request that stores an offset.
#[derive(Deserialize)]
struct Store {
    #[serde(default, alias = "id")]
    consumer_id: Option<Value>,
    #[serde(default)]
    partition_id: Option<u32>,
    offset: u64,
}

/// What answers a request of a user.
pub(super) struct Answering<'a> {
    pub(super) context: &'a Arc<IggyContext>,
    pub(super) identity: &'a Identity,
    pub(super) caller: UserCaller<'a>,
    pub(super) session: Session,
}

impl Answering<'_> {
    pub(super) async fn answer(&self, route: Route<'_>, asked: &Asked) -> Result<Reply, Problem> {
        let query = Query::read(&asked.query);
        match route {
            Route::Send(topic) => self.send(topic, &query, &asked.body).await,
            Route::Poll(topic) => self.poll(topic, &query).await,
            Route::Flush(topic, partition, fsync) => self.flush(topic, partition, fsync).await,
            Route::GetOffset(topic) => self.get_offset(topic, &query).await,
            Route::StoreOffset(topic) => self.store_offset(topic, &asked.body).await,
            Route::DeleteOffset(topic, consumer) => {
                self.delete_offset(topic, consumer, &query).await
            }
            Route::Groups(topic) => self.groups(topic),
            Route::Group(topic, group) => self.group(topic, group),
            Route::Clients => self.clients(),
            Route::Client(number) => self.client(number),
        }
    }

    fn generation(&self) -> Generation {
        self.session.generation
    }

    fn layout(&self) -> Generation {
        layout(self.generation())
    }

    /// No connection of HTTP is a member of a group.
    fn no_groups(&self) -> Memberships {
        Memberships::none(self.context)
    }

    async fn send(&self, topic: Topic<'_>, query: &Query, body: &[u8]) -> Result<Reply, Problem> {
        let generation = self.generation();
        let payload = sending::payload(topic.stream, topic.topic, generation, body)?;
        let sent = send::store(self.context, self.caller, self.layout(), &payload).await?;
        if generation != Generation::V2 {
            return Ok(empty(StatusCode::CREATED));
        }
        let status = match query.text("ack") {
            None | Some("replicated") => StatusCode::CREATED,
            Some("none") => StatusCode::ACCEPTED,
            Some(_) => {
                return Err(Problem::malformed(
                    "the parameter ack is replicated or none",
                ));
            }
        };
        let confirmation = value!({
            "stream_id": generation.show(sent.stream),
            "topic_id": generation.show(sent.topic),
            "partition_id": generation.show(sent.partition),
            "base_offset": sent.base_offset,
        });
        let mut reply = json(status, &value!({"confirmations": [confirmation]}));
        let (name, value) = DURABILITY;
        reply.headers_mut().insert(name, value);
        Ok(reply)
    }

    async fn poll(&self, topic: Topic<'_>, query: &Query) -> Result<Reply, Problem> {
        let mut payload = Payload::new(self.generation());
        payload.consumer(&query.consumer(self.generation()))?;
        topic.put(&mut payload)?;
        payload.partition(query.value("partition_id")?);
        let kind = match query.text("kind").unwrap_or("offset") {
            "offset" => 1,
            "timestamp" => 2,
            "first" => 3,
            "last" => 4,
            "next" => 5,
            _ => {
                let text = "the parameter kind is offset, timestamp, first, last or next";
                return Err(Problem::malformed(text));
            }
        };
        payload.out.put_u8(kind);
        payload
            .out
            .put_u64_le(query.value("value")?.unwrap_or_default());
        payload
            .out
            .put_u32_le(query.value("count")?.unwrap_or(COUNT));
        let commits = query.value("auto_commit")?.unwrap_or(false);
        payload.out.put_u8(u8::from(commits));
        let mut own = self.no_groups();
        let polled = poll::poll(
            self.context,
            self.caller,
            &mut own,
            self.identity,
            self.layout(),
            &payload.out,
        );
        let json = polled::json(content(&polled.await?), self.generation())?;
        let answers = &self.context.listener.admission.answers;
        let charge = answers.charge(self.identity, json.len()).map_err(|full| {
            self.context.statistics.calls_refused.add(1);
            Problem::of_http(StatusCode::SERVICE_UNAVAILABLE, full.message())
        })?;
        Ok(reply(StatusCode::OK, JSON, charge.hold(Bytes::from(json))))
    }

    async fn flush(
        &self,
        topic: Topic<'_>,
        partition: &str,
        fsync: &str,
    ) -> Result<Reply, Problem> {
        if self.generation() == Generation::V2 {
            return Err(Status::FeatureUnavailable.into());
        }
        let mut payload = Payload::new(self.generation());
        topic.put(&mut payload)?;
        let partition: u32 = partition
            .parse()
            .map_err(|_| Problem::malformed("the partition is not a number below 2^32"))?;
        payload.out.put_u32_le(partition);
        // The earliest clients write the name of the parameter too.
        let fsync: bool = fsync
            .trim_start_matches("fsync=")
            .parse()
            .map_err(|_| Problem::malformed("the last part of the path is true or false"))?;
        payload.out.put_u8(u8::from(fsync));
        send::flush(self.context, self.caller, self.layout(), &payload.out).await?;
        Ok(empty(StatusCode::OK))
    }

    async fn get_offset(&self, topic: Topic<'_>, query: &Query) -> Result<Reply, Problem> {
        let consumer = query.consumer(self.generation());
        let payload = self.position(topic, &consumer, query.value("partition_id")?)?;
        let own = self.no_groups();
        let found = offsets::get(self.context, self.caller, &own, self.layout(), &payload.out);
        shown(&found.await?, Offset::read)
    }

    async fn store_offset(&self, topic: Topic<'_>, body: &[u8]) -> Result<Reply, Problem> {
        let store: Store = serde_json::from_slice(body)?;
        let consumer = match store.consumer_id {
            None | Some(Value::Null) => default_consumer(self.generation()),
            Some(Value::String(text)) => text,
            Some(Value::Number(number)) => number.to_string(),
            Some(_) => {
                let text = "consumer_id is a text or a number";
                return Err(Problem::of_http(StatusCode::UNPROCESSABLE_ENTITY, text));
            }
        };
        let mut payload = self.position(topic, &consumer, store.partition_id)?;
        payload.out.put_u64_le(store.offset);
        let own = self.no_groups();
        let (context, layout) = (self.context, self.layout());
        offsets::store(context, self.caller, &own, layout, &payload.out).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    async fn delete_offset(
        &self,
        topic: Topic<'_>,
        consumer: &str,
        query: &Query,
    ) -> Result<Reply, Problem> {
        let payload = self.position(topic, consumer, query.value("partition_id")?)?;
        let own = self.no_groups();
        let (context, layout) = (self.context, self.layout());
        offsets::delete(context, self.caller, &own, layout, &payload.out).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    fn position(
        &self,
        topic: Topic<'_>,
        consumer: &str,
        partition: Option<u32>,
    ) -> Result<Payload, Problem> {
        let mut payload = Payload::new(self.generation());
        payload.consumer(consumer)?;
        topic.put(&mut payload)?;
        payload.partition(partition);
        Ok(payload)
    }

    fn groups(&self, topic: Topic<'_>) -> Result<Reply, Problem> {
        let mut payload = Payload::new(self.generation());
        topic.put(&mut payload)?;
        let found = groups::list(self.context, self.caller, self.layout(), &payload.out)?;
        let groups = Group::list(Fields(content(&found))).ok_or(Status::Error)?;
        Ok(json(StatusCode::OK, &groups))
    }

    fn group(&self, topic: Topic<'_>, group: &str) -> Result<Reply, Problem> {
        let mut payload = Payload::new(self.generation());
        topic.put(&mut payload)?;
        payload.identifier(group)?;
        let found = groups::get(self.context, self.caller, self.layout(), &payload.out)?;
        shown(&found, Group::one)
    }

    fn clients(&self) -> Result<Reply, Problem> {
        self.check_reads_servers()?;
        let found = clients::list(self.context, Generation::V1, &[])?;
        let clients = Connected::list(Fields(content(&found)), self.generation());
        Ok(json(StatusCode::OK, &clients.ok_or(Status::Error)?))
    }

    fn client(&self, number: &str) -> Result<Reply, Problem> {
        self.check_reads_servers()?;
        let number: u32 = number
            .parse()
            .map_err(|_| Problem::malformed("the number of a client is below 2^32"))?;
        let found = clients::get(self.context, Generation::V1, &number.to_le_bytes())?;
        shown(&found, |from| Connected::one(from, self.generation()))
    }

    fn check_reads_servers(&self) -> Result<(), Problem> {
        if self.caller.may(UserAction::ReadServers, None) {
            return Ok(());
        }
        Err(Status::Unauthorized.into())
    }
}

/// A reply of the binary protocol without its head.
fn content(frame: &[u8]) -> &[u8] {
    frame.get(REPLY_HEAD_BYTES..).unwrap_or_default()
}

/// What a reply shows, as JSON; an empty one is something that is not there.
fn shown<T: serde::Serialize>(
    frame: &[u8],
    read: impl FnOnce(Fields<'_>) -> Option<T>,
) -> Result<Reply, Problem> {
    let content = content(frame);
    if content.is_empty() {
        return Err(Problem::absent());
    }
    let read = read(Fields(content)).ok_or(Status::Error)?;
    Ok(json(StatusCode::OK, &read))
}
