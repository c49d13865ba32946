//! The same loads on NATS JetStream, through async-nats.
use crate::arguments::Arguments;
use crate::report::{Clock, Failure, with_latencies};
use async_nats::jetstream::consumer::{DeliverPolicy, pull, push};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{self, Context, stream};
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::VecDeque;
use std::time::Instant;

async fn context(arguments: &Arguments) -> Result<(async_nats::Client, Context), Failure> {
    let client = async_nats::connect(arguments.text("url", "nats://127.0.0.1:4222")).await?;
    Ok((client.clone(), jetstream::new(client)))
}

/// Creates the stream `stream` on `subject`, file storage.
pub async fn create(arguments: &Arguments) -> Result<serde_json::Value, Failure> {
    let (_, context) = context(arguments).await?;
    let config = stream::Config {
        name: arguments.text("stream", "bench").into(),
        subjects: vec![arguments.text("subject", "bench").into()],
        storage: stream::StorageType::File,
        ..stream::Config::default()
    };
    context.create_stream(config).await?;
    Ok(Clock::start().report(1))
}

/// A window of `in_flight` outstanding acks, awaited in order; with `ids` = 1 every message has a `Nats-Msg-Id`. An ack that says
/// `duplicate`, or a sequence that does not follow, ends it: what was measured is then not what was meant.
pub async fn publish(arguments: &Arguments) -> Result<serde_json::Value, Failure> {
    let (client, context) = context(arguments).await?;
    let value = Bytes::from(arguments.value());
    let subject = arguments.text("subject", "bench").to_owned();
    let prefix = client.new_inbox();
    let has_ids = arguments.number("ids", 0) > 0;
    let (mut number, mut last) = (0_u64, None);
    let (in_flight, end) = (
        arguments.number("in_flight", 512) as usize,
        Instant::now() + arguments.duration(),
    );
    let (mut waiting, mut micros) = (VecDeque::with_capacity(in_flight), Vec::new());
    let clock = Clock::start();
    while Instant::now() < end {
        while waiting.len() < in_flight {
            let mut message = PublishMessage::build().payload(value.clone());
            if has_ids {
                message = message.message_id(format!("{prefix}.{number}"));
            }
            number += 1;
            let ack = context.send_publish(subject.clone(), message).await?;
            waiting.push_back((Instant::now(), ack));
        }
        // a quarter at a time: the window stays nearly full and the loop short
        for _ in 0..in_flight.div_ceil(4) {
            if let Some((start, ack)) = waiting.pop_front() {
                last = Some(follows(last, &ack.await?)?);
                micros.push(start.elapsed().as_micros() as u32);
            }
        }
    }
    for (start, ack) in waiting {
        last = Some(follows(last, &ack.await?)?);
        micros.push(start.elapsed().as_micros() as u32);
    }
    Ok(with_latencies(clock.report(micros.len() as u64), micros))
}

/// The sequence of an ack, which comes after the one before.
fn follows(last: Option<u64>, ack: &PublishAck) -> Result<u64, Failure> {
    if ack.duplicate || last.is_some_and(|last| last + 1 != ack.sequence) {
        let text = format!("ack {ack:?} does not follow {last:?}");
        return Err(Failure::new(text));
    }
    Ok(ack.sequence)
}

/// Reads `count` messages with an ordered consumer; `mode` is `push` or `pull`.
pub async fn consume(arguments: &Arguments) -> Result<serde_json::Value, Failure> {
    let (client, context) = context(arguments).await?;
    let stream = context
        .get_stream(arguments.text("stream", "bench"))
        .await?;
    let count = arguments.number("count", 1_000_000);
    let clock = Clock::start();
    let mut bytes = 0_usize;
    if arguments.text("mode", "push") == "push" {
        let config = push::OrderedConfig {
            deliver_subject: client.new_inbox(),
            deliver_policy: DeliverPolicy::All,
            ..push::OrderedConfig::default()
        };
        let mut messages = stream
            .create_consumer(config)
            .await?
            .messages()
            .await?
            .take(count as usize);
        while let Some(message) = messages.next().await {
            bytes += message?.payload.len();
        }
    } else {
        let config = pull::OrderedConfig {
            deliver_policy: DeliverPolicy::All,
            ..pull::OrderedConfig::default()
        };
        let mut messages = stream
            .create_consumer(config)
            .await?
            .messages()
            .await?
            .take(count as usize);
        while let Some(message) = messages.next().await {
            bytes += message?.payload.len();
        }
    }
    if bytes == 0 {
        return Err(Failure::new("nothing came"));
    }
    Ok(clock.report(count))
}
