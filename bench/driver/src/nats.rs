//! Plain NATS publishing.
use crate::arguments::Arguments;
use crate::report::{Clock, Failure};
use bytes::Bytes;

/// Publishes `count` messages as fast as NATS takes them.
pub async fn publish(arguments: &Arguments) -> Result<serde_json::Value, Failure> {
    let client = async_nats::connect(arguments.text("url", "nats://127.0.0.1:4222")).await?;
    let value = Bytes::from(arguments.value());
    let subject = async_nats::Subject::from(arguments.text("subject", "bench"));
    let count = arguments.number("count", 2_000_000);
    let clock = Clock::start();
    for _ in 0..count {
        client.publish(subject.clone(), value.clone()).await?;
    }
    client.flush().await?;
    Ok(clock.report(count))
}
