//! One connection, with its bounds.
use super::Site;
use super::client::Client;
use super::patient::Patient;
use crate::admission::{PATIENCE, opened};
use crate::http::bounded;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// From the end of an answer, or the beginning of the connection, to the whole head of the next request.
const HEAD: Duration = Duration::from_mins(1);

/// Serves a connection until it ends.
pub(in crate::iggy) async fn serve(site: Arc<Site>, stream: TcpStream, is_known: Arc<AtomicBool>) {
    // Fails only for a connection that is gone.
    let _ = stream.set_nodelay(true);
    let context = &site.context;
    let patience = Duration::from_millis(context.limits.handshake_ms);
    let Ok(Some((stream, peer))) = timeout(patience, opened(&context.listener, stream)).await
    else {
        context.statistics.handshakes_failed.add(1);
        return;
    };
    let client = Client::new(site.clone(), peer, is_known);
    let service = service_fn(|request| async { Ok::<_, Infallible>(client.answer(request).await) });
    let stream = TokioIo::new(Patient::new(stream, PATIENCE));
    let served = bounded(HEAD)
        // A client that sends no more still gets its answers.
        .half_close(true)
        .serve_connection(stream, service);
    // The connection of a client that is too slow, or does not send HTTP, is closed.
    let _ = served.await;
}
