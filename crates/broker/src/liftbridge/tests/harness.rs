//! An engine in a temporary directory that serves on a free port, and a plain gRPC client.
use crate::engine::{Engine, EngineSettings, ViewChanges};
use crate::partition::{EndReason, PartitionSpec};
use crate::stage::SinkChanges;
use bascule_wire::liftbridge::messages::{
    Message, PublishRequest, PublishResponse, SubscribeRequest,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;
use tokio::task::block_in_place;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// Longest wait of any call of a test.
pub const PATIENCE: Duration = Duration::from_mins(1);

pub struct Harness {
    pub engine: Engine,
    pub address: String,
    streams: parking_lot::Mutex<HashMap<String, Value>>,
    specs: parking_lot::Mutex<HashMap<u64, PartitionSpec>>,
    version: parking_lot::Mutex<u64>,
    _directory: tempfile::TempDir,
}

impl Harness {
    /// A broker that serves, with default limits changed by `limits`.
    pub fn with_limits(limits: &Value) -> Self {
        block_in_place(|| Self::start(limits))
    }

    fn start(limits: &Value) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = json!({
            "data_dir": directory.path().join("data"), "cluster_id": "cluster", "broker_id": "b1",
            "runtime_threads": 2, "namespace": "ns", "limits": limits,
        });
        let settings: EngineSettings = serde_json::from_value(settings).unwrap();
        let engine = Engine::new(&settings).unwrap();
        // Before that no log is compacted.
        let all_sinks = SinkChanges {
            complete: true,
            ..SinkChanges::default()
        };
        engine.set_sinks(0, all_sinks).unwrap();
        let port = engine.bind("127.0.0.1", 0).unwrap();
        engine.listen().unwrap();
        engine.set_serving(true);
        let address = format!("http://127.0.0.1:{port}");
        let (streams, specs, version) = Default::default();
        Self {
            engine,
            address,
            streams,
            specs,
            version,
            _directory: directory,
        }
    }

    pub fn new() -> Self {
        Self::with_limits(&json!({}))
    }

    /// Creates a stream with as many partitions, led here; `options` overrides partition and stream settings.
    pub fn create(&self, name: &str, partitions: u64, options: &Value) {
        let first = 1000 * (self.streams.lock().len() as u64 + 1);
        let specs: Vec<PartitionSpec> = (0..partitions)
            .map(|number| spec(name, first, number, options))
            .collect();
        let led: Vec<_> = (0..partitions).map(|number| (first + number, 1)).collect();
        let known = specs.iter().map(|spec| (spec.incarnation, spec.clone()));
        self.specs.lock().extend(known);
        block_in_place(|| {
            assert_eq!(self.engine.open(specs).unwrap(), vec![]);
            self.engine.lead(&led).unwrap();
        });
        let places: Vec<Value> = (0..partitions)
            .map(|number| json!({"number": number, "incarnation": first + number, "leader": "b1", "leader_epoch": 1}))
            .collect();
        let stream = json!({
            "namespace": "default", "name": name, "id": first, "subject": subject(options), "created_ns": 1,
            "concurrency_control": options["concurrency_control"] == true, "partitions": places,
        });
        self.publish_view(name, stream);
    }

    /// Sets a field of a partition in the view; `readonly` in the partition too.
    pub fn set(&self, name: &str, number: usize, field: &str, value: Value) {
        let mut stream = self.streams.lock()[name].clone();
        if field == "readonly" {
            let incarnation = stream["partitions"][number]["incarnation"].as_u64();
            let mut spec = self.specs.lock()[&incarnation.unwrap()].clone();
            spec.readonly = value == true;
            assert_eq!(
                block_in_place(|| self.engine.open(vec![spec])).unwrap(),
                vec![]
            );
        }
        stream["partitions"][number][field] = value;
        self.publish_view(name, stream);
    }

    /// Does what the control plane does when a partition is to be resumed, once: resumes it, or refuses.
    pub async fn answer_resume(&self, refusal: Option<(i32, &str)>) {
        let events = self.engine.events();
        let asked = loop {
            let mut requests = events.poll(16).into_iter().filter_map(|event| match event {
                crate::events::Event::Request(request) => Some(request),
                _ => None,
            });
            if let Some(asked) =
                requests.find(|request| request.method == "liftbridge/ResumePartition")
            {
                break asked;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let body: Value = serde_json::from_slice(&asked.body).unwrap();
        let outcome = match refusal {
            None => {
                let number = body["partition"].as_u64().unwrap() as usize;
                self.set(
                    body["stream"].as_str().unwrap(),
                    number,
                    "paused",
                    json!(false),
                );
                Ok(bytes::Bytes::new())
            }
            Some((code, message)) => Err(crate::events::Rejection {
                status: code,
                message: message.into(),
                code: None,
                details: json!({}),
                iggy_status: None,
            }),
        };
        events.respond(asked.id, outcome);
    }

    /// Removes a stream and its partitions.
    pub fn delete(&self, name: &str) {
        let stream = self.streams.lock().remove(name).unwrap();
        let incarnations: Vec<u64> = stream["partitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|place| place["incarnation"].as_u64().unwrap())
            .collect();
        let changes = ViewChanges {
            removed: vec![("default".into(), name.into())],
            ..ViewChanges::default()
        };
        self.engine
            .publish_view(self.next_version(), changes)
            .unwrap();
        block_in_place(|| self.engine.end(&incarnations, EndReason::Deleted)).unwrap();
    }

    /// Puts a consumer group into the view: the generation it began with, the present one, and its members.
    pub fn group(&self, id: &str, created: u64, generation: u64, members: &Value) {
        let group =
            json!({"id": id, "created": created, "generation": generation, "members": members});
        self.change_groups(json!({"groups": [group]}));
    }

    pub fn remove_group(&self, id: &str) {
        self.change_groups(json!({"removed_groups": [id]}));
    }

    fn change_groups(&self, changes: Value) {
        let changes: ViewChanges = serde_json::from_value(changes).unwrap();
        let version = self.next_version();
        self.engine.publish_view(version, changes).unwrap();
    }

    fn publish_view(&self, name: &str, stream: Value) {
        let changes: ViewChanges = serde_json::from_value(json!({"streams": [stream]})).unwrap();
        self.engine
            .publish_view(self.next_version(), changes)
            .unwrap();
        self.streams.lock().insert(name.into(), stream);
    }

    fn next_version(&self) -> u64 {
        let mut version = self.version.lock();
        *version += 1;
        *version
    }

    pub async fn connect(&self) -> Plain {
        let channel = Channel::from_shared(self.address.clone())
            .unwrap()
            .connect()
            .await
            .unwrap();
        Plain(channel)
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        block_in_place(|| self.engine.close(Duration::from_millis(100)));
    }
}

fn subject(options: &Value) -> &str {
    options["subject"].as_str().unwrap_or("subject")
}

fn spec(stream: &str, first: u64, number: u64, options: &Value) -> PartitionSpec {
    let base = subject(options);
    let own = if number == 0 {
        base.to_owned()
    } else {
        format!("{base}.{number}")
    };
    let mut spec = json!({
        "namespace": "default", "stream": stream, "number": number, "incarnation": first + number, "subject": own,
        "base_subject": base, "durability": "memory", "codec": "none", "max_record_bytes": 1 << 20,
        "batch_records": 1024, "batch_bytes": 1 << 20, "retention_age_ms": 0, "retention_bytes": 0,
        "retention_messages": 0, "cleaner_interval_ms": 0, "segment_bytes": 1 << 24, "segment_age_ms": 0,
        "concurrency_control": options["concurrency_control"] == true,
    });
    for key in ["compact", "cleaner_interval_ms", "segment_bytes"] {
        if let Some(value) = options.get(key) {
            spec[key] = value.clone();
        }
    }
    serde_json::from_value(spec).unwrap()
}

/// Calls as a generated client makes them.
pub struct Plain(Channel);

impl Plain {
    pub async fn unary<Q, R>(
        &mut self,
        method: &str,
        request: Q,
        timeout: Option<Duration>,
    ) -> Result<R, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        R: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await.unwrap();
        let mut request = Request::new(request);
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        let path = format!("/{method}").parse().unwrap();
        let answer = grpc.unary(request, path, ProstCodec::<Q, R>::default());
        tokio::time::timeout(PATIENCE, answer)
            .await
            .unwrap()
            .map(tonic::Response::into_inner)
    }

    pub async fn publish(&mut self, request: PublishRequest) -> Result<PublishResponse, Status> {
        self.unary("proto.API/Publish", request, Some(PATIENCE))
            .await
    }

    /// Publishes values to partition 0, and checks that they are stored.
    pub async fn fill(&mut self, stream: &str, values: &[&str]) {
        for value in values {
            self.publish(to(stream, value)).await.unwrap();
        }
    }

    /// A PublishAsync call that ends after `requests`.
    pub async fn publish_async(
        &mut self,
        requests: Vec<PublishRequest>,
    ) -> Result<Vec<PublishResponse>, Status> {
        let mut responses = self
            .open_publish_async(tokio_stream::iter(requests))
            .await?;
        let mut all = Vec::new();
        while let Some(response) = tokio::time::timeout(PATIENCE, responses.message())
            .await
            .unwrap()?
        {
            all.push(response);
        }
        Ok(all)
    }

    pub async fn open_publish_async<S>(
        &mut self,
        requests: S,
    ) -> Result<Streaming<PublishResponse>, Status>
    where
        S: tokio_stream::Stream<Item = PublishRequest> + Send + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await.unwrap();
        let path = "/proto.API/PublishAsync".parse().unwrap();
        let codec = ProstCodec::<PublishRequest, PublishResponse>::default();
        grpc.streaming(Request::new(requests), path, codec)
            .await
            .map(tonic::Response::into_inner)
    }

    /// A subscription past its handshake.
    pub async fn subscribe(
        &mut self,
        request: SubscribeRequest,
    ) -> Result<Streaming<Message>, Status> {
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await.unwrap();
        let path = "/proto.API/Subscribe".parse().unwrap();
        let codec = ProstCodec::<SubscribeRequest, Message>::default();
        let mut messages = grpc
            .server_streaming(Request::new(request), path, codec)
            .await?
            .into_inner();
        let handshake = tokio::time::timeout(PATIENCE, messages.message())
            .await
            .unwrap()?;
        assert_eq!(
            handshake,
            Some(Message::default()),
            "the handshake is an empty message"
        );
        Ok(messages)
    }

    /// All of a subscription: the messages and how it ended.
    pub async fn read(
        &mut self,
        request: SubscribeRequest,
    ) -> Result<(Vec<Message>, Status), Status> {
        let mut messages = self.subscribe(request).await?;
        let mut all = Vec::new();
        loop {
            match tokio::time::timeout(PATIENCE, messages.message())
                .await
                .unwrap()
            {
                Ok(Some(message)) => all.push(message),
                Ok(None) => return Ok((all, Status::ok(""))),
                Err(status) => return Ok((all, status)),
            }
        }
    }
}

/// A request with policy ALL to partition 0.
pub fn to(stream: &str, value: &str) -> PublishRequest {
    PublishRequest {
        stream: stream.into(),
        value: value.as_bytes().to_vec().into(),
        correlation_id: format!("c-{value}"),
        ack_policy: 1,
        ..PublishRequest::default()
    }
}

/// Requests that are sent as the test goes.
pub fn sender() -> (
    tokio::sync::mpsc::UnboundedSender<PublishRequest>,
    UnboundedReceiverStream<PublishRequest>,
) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    (sender, UnboundedReceiverStream::new(receiver))
}
