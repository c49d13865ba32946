//! The native core of the SDK: publish and subscribe over the Liftbridge protocol. Independent of Python and of the server.
//!
//! * [`Client`]: one connection to one broker; calls, batched publishes, subscriptions. Every method blocks its caller.
//! * [`PublishBatch`]: records to publish, framed as they are added; [`Spread`]: the same for several partitions, which a
//!   [`Partitioner`] chooses.
//! * [`Subscription`]: a background task reads and decodes into a bounded buffer, the caller takes [`Records`] out.
//! * [`TlsOptions`]: trusted authorities and the client's certificate.
//! * [`Error`]: a code of `specs/errors.toml`, one sentence, and details.
//!
//! The runtime behind them is small, starts on first use and belongs to the process that started it: a forked child is
//! refused with a sentence that names the remedy, and may connect again.
mod acks;
mod client;
mod columns;
mod error;
mod foreign;
mod frames;
#[doc(hidden)]
pub mod fuzz;
mod notifier;
mod partitioner;
mod publish;
mod publish_batch;
mod runtime;
mod spread;
mod subscription;
mod tls;
mod transport;

pub use bascule_record::Producer;
pub use bascule_wire::ErrorCode;
pub use client::{Client, Options};
pub use columns::Records;
pub use error::Error;
pub use notifier::Notifier;
pub use partitioner::{Partitioner, Rule};
pub use publish_batch::{NewRecord, PublishBatch};
pub use runtime::Patience;
pub use spread::{Place, Spread};
pub use subscription::Subscription;
pub use tls::TlsOptions;
