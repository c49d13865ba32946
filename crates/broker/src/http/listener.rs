//! From the listening socket to answered requests. A connection has [`HEAD`] to send its request and [`ANSWER`] until it
//! has read the answer; at most [`CONNECTIONS`] are open: one more, and the oldest is closed, so that those who say
//! nothing keep nobody out.
use super::respond::respond;
use super::{HttpSettings, RENDERS, Site};
use crate::engine::error::EngineError;
use crate::engine::serve::{self, Listening};
use crate::metrics::MetricsContext;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// Open connections.
const CONNECTIONS: usize = 64;
/// From the accept to the whole head of the request.
const HEAD: Duration = Duration::from_secs(5);
/// From the accept to the end of the answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The head of a request, bytes; more is answered with 431.
const HEAD_BYTES: usize = 16 << 10;
/// Header fields of a request.
const FIELDS: usize = 64;
/// After an accept that failed, mostly for a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Binds (port 0 = any free one) and answers; returns the bound port. Call inside the runtime.
///
/// # Errors
/// `address_in_use`, `address_unusable`.
pub(crate) fn listen(
    context: Arc<MetricsContext>,
    settings: HttpSettings,
    host: &str,
    port: u16,
) -> Result<(Listening, u16), EngineError> {
    let (listener, bound) = serve::listen(host, port)?;
    let site = Arc::new(Site {
        context,
        settings,
        renders: Arc::new(Semaphore::new(RENDERS)),
    });
    Ok((Listening::start(accept(site, listener)), bound))
}

async fn accept(site: Arc<Site>, listener: TcpListener) {
    // Newest last; those that have ended are among them.
    let mut open = Open::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.0
                    .push_back(tokio::spawn(converse(site.clone(), stream)).abort_handle());
                open.keep_newest();
            }
            // Counted and logged where the gRPC port meets the same lack.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Connections, ended when the listener ends.
#[derive(Default)]
struct Open(VecDeque<AbortHandle>);

impl Open {
    fn keep_newest(&mut self) {
        if self.0.len() > CONNECTIONS {
            self.0.retain(|connection| !connection.is_finished());
        }
        if self.0.len() > CONNECTIONS
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        for connection in &self.0 {
            connection.abort();
        }
    }
}

/// HTTP/1.1 whose heads are bounded; the whole head of a request comes within `head`.
pub(crate) fn bounded(head: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(HEAD_BYTES)
        .max_headers(FIELDS);
    builder
}

/// Answers the one request of a connection.
async fn converse(site: Arc<Site>, stream: TcpStream) {
    // The permit of an answer to /metrics lasts until it is sent: until this function ends.
    let permit = Mutex::new(None);
    let service = service_fn(|request| respond(&site, request, &permit));
    let served = bounded(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // The connection of a client that is too slow, or does not send HTTP, is closed.
    let _ = tokio::time::timeout(ANSWER, served).await;
}
