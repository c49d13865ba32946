//! `ListFlights`: the streams in pages, each made when the connection takes the one before.
use super::body::ScanBody;
use super::context::FlightContext;
use super::refusal::{internal, invalid};
use super::{info, resolve, threads, unary};
use crate::access::Action;
use crate::names::DEFAULT_NAMESPACE;
use crate::tls::Peer;
use crate::view::StreamView;
use arrow_flight::Criteria;
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;

/// Streams whose name begins with this are the broker's own; they are listed only when asked for by that prefix.
const INTERNAL_PREFIX: &str = "__";
/// What `FetchMetadata` is allowed on: the list of all streams.
const EVERYTHING: &str = "*";
/// A page ends with the stream that makes it so long, or is so many.
const PAGE_BYTES: usize = 64 << 10;
const PAGE_STREAMS: usize = 64;

/// Namespace and name.
type Key = (String, String);

/// One call: which streams, and the last that was listed.
struct Listing {
    context: Arc<FlightContext>,
    peer: Peer,
    prefix: String,
    after: Option<Key>,
    is_done: bool,
}

/// Framed messages, the last stream in them, and whether there are no more.
struct Page {
    frames: Vec<u8>,
    last: Option<Key>,
    is_last: bool,
}

/// Every stream whose name starts with the criteria (UTF-8; empty = all), by namespace and name.
///
/// # Errors
/// `PERMISSION_DENIED`; `INVALID_ARGUMENT` when the criteria are not UTF-8; `RESOURCE_EXHAUSTED`.
pub async fn respond(
    context: Arc<FlightContext>,
    peer: Peer,
    criteria: Criteria,
) -> Result<Body, Status> {
    let prefix = String::from_utf8(criteria.expression.to_vec()).map_err(|_| {
        invalid("criteria are not UTF-8: they are a prefix of stream names".to_owned())
    })?;
    let mut listing = Listing {
        context,
        peer,
        prefix,
        after: None,
        is_done: false,
    };
    let first = listing.next().await?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        while !listing.is_done {
            let page = listing.next().await;
            let is_failed = page.is_err();
            // This fails when the caller has gone.
            if sender.send(page.map(|page| vec![page])).await.is_err() || is_failed {
                return;
            }
        }
    });
    Ok(Body::new(ScanBody::new(first, receiver)))
}

impl Listing {
    /// The next page, charged to the client until it has read it.
    async fn next(&mut self) -> Result<Bytes, Status> {
        let resource = (DEFAULT_NAMESPACE, EVERYTHING);
        resolve::authorize(&self.context, &self.peer, Action::FetchMetadata, resource)?;
        let (context, prefix, after) =
            (self.context.clone(), self.prefix.clone(), self.after.take());
        let page = threads::answer(move || page(&context, &prefix, after.as_ref())).await;
        let page = page.map_err(|error| internal(format!("listing failed: {error}")))??;
        (self.after, self.is_done) = (page.last, page.is_last);
        unary::charged(&self.context, &self.peer, page.frames)
    }
}

fn page(context: &FlightContext, prefix: &str, after: Option<&Key>) -> Result<Page, Status> {
    let view = context.view.load();
    let shown = |name: &str| {
        name.starts_with(prefix)
            && (prefix.starts_with(INTERNAL_PREFIX) || !name.starts_with(INTERNAL_PREFIX))
    };
    let after = after.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
    let mut streams: Vec<&Arc<StreamView>> = view
        .namespaces
        .values()
        .flat_map(|streams| streams.values())
        .filter(|s| shown(&s.name) && after.is_none_or(|after| key(s) > after))
        .collect();
    let count = streams.len();
    if count > PAGE_STREAMS {
        streams.select_nth_unstable_by(PAGE_STREAMS, |a, b| key(a).cmp(&key(b)));
        streams.truncate(PAGE_STREAMS);
    }
    streams.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    let (mut frames, mut listed) = (Vec::new(), 0);
    let mut last = None;
    for stream in streams {
        unary::frame(&mut frames, &info::listed(context, stream)?.encode_to_vec());
        last = Some((stream.namespace.clone(), stream.name.clone()));
        listed += 1;
        if frames.len() >= PAGE_BYTES {
            break;
        }
    }
    Ok(Page {
        frames,
        last,
        is_last: listed == count,
    })
}

fn key(stream: &StreamView) -> (&str, &str) {
    (&stream.namespace, &stream.name)
}
