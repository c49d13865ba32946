//! The load driver behind `make bench`: one command, `key=value` arguments, one JSON line on standard output.
//!
//! | Command | Does |
//! |---|---|
//! | `sync` | times 4 KiB writes with data sync into a pre-zeroed file in `dir` |
//! | `publish` | unary Publish, `in_flight` callers; with `acks`, a file, what was acked is written there |
//! | `publish-async` | one PublishAsync stream, `in_flight` records outstanding |
//! | `subscribe` | one Subscribe from the start until `count` messages were decoded |
//! | `nats-publish` | `count` plain NATS messages |
//! | `jetstream-create` | a file-backed JetStream stream |
//! | `jetstream-publish` | asynchronous JetStream publish, `in_flight` acks outstanding; also to a stream with `natsAcks` |
//! | `jetstream-consume` | an ordered consumer from the start until `count` messages came |
//! | `iggy-create` | a stream of Iggy with a topic `t` of one partition |
//! | `iggy-send` | Iggy's `SendMessages`, `batch` messages at a time, each when the former is answered |
//! | `iggy-poll` | Iggy's `PollMessages`, `batch` at a time, until `count` messages were decoded |
//!
//! Common arguments: `address`, `url`, `stream`, `subject`, `bytes` (value size), `seconds`, `count`, and of publishing
//! `partitions` (so many of the stream in turn; 1).
mod arguments;
mod grpc;
mod iggy;
mod jetstream;
mod nats;
mod report;
mod subscribe;
mod sync;
mod unary;

use arguments::Arguments;
use report::Failure;
use std::sync::Arc;

fn main() {
    let arguments = Arc::new(Arguments::from_command_line());
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.number("threads", 1) as usize)
        .enable_all()
        .build()
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(run(&arguments)));
    match outcome {
        Ok(report) => println!("{report}"),
        Err(failure) => {
            eprintln!("{}: {failure}", arguments.command);
            std::process::exit(1);
        }
    }
}

async fn run(arguments: &Arc<Arguments>) -> Result<serde_json::Value, Failure> {
    match arguments.command.as_str() {
        "sync" => sync::run(arguments),
        "publish" => unary::publish(arguments).await,
        "publish-async" => grpc::publish_async(arguments).await,
        "subscribe" => subscribe::run(arguments).await,
        "nats-publish" => nats::publish(arguments).await,
        "jetstream-create" => jetstream::create(arguments).await,
        "jetstream-publish" => jetstream::publish(arguments).await,
        "jetstream-consume" => jetstream::consume(arguments).await,
        "iggy-create" => iggy::create(arguments).await,
        "iggy-send" => iggy::send(arguments).await,
        "iggy-poll" => iggy::poll(arguments).await,
        other => Err(Failure::new(format!("unknown command {other:?}"))),
    }
}
