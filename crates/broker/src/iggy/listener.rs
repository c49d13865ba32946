//! From the listening socket to connections.
//!
//! A connection that has not logged in is a socket and a task, which may give way (`connection_tasks`). With its login it takes a
//! place among `limits.connections`, which it keeps until it ends.
use super::connection::Connection;
use super::connection_tasks::ConnectionTasks;
use super::context::IggyContext;
use super::http::{self, IggyHttpSettings, Site};
use crate::engine::error::EngineError;
use crate::engine::serve::{self, Listening};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// After an accept that failed, mostly for a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Binds (port 0 = any free one) and serves frames; returns the bound port. Call inside the runtime.
///
/// # Errors
/// `address_in_use`, `address_unusable`.
pub(crate) fn listen(
    context: Arc<IggyContext>,
    host: &str,
    port: u16,
) -> Result<(Listening, u16), EngineError> {
    accept(context, None, host, port)
}

/// The same for HTTP.
///
/// # Errors
/// `address_in_use`, `address_unusable`.
pub(crate) fn listen_http(
    context: Arc<IggyContext>,
    settings: IggyHttpSettings,
    host: &str,
    port: u16,
) -> Result<(Listening, u16), EngineError> {
    let site = Arc::new(Site::new(context.clone(), settings));
    accept(context, Some(site), host, port)
}

fn accept(
    context: Arc<IggyContext>,
    site: Option<Arc<Site>>,
    host: &str,
    port: u16,
) -> Result<(Listening, u16), EngineError> {
    let (listener, bound) = serve::listen(host, port)?;
    let acceptor = Acceptor {
        site,
        connections: ConnectionTasks::new(context.clone()),
        context,
    };
    Ok((Listening::start(acceptor.run(listener)), bound))
}

struct Acceptor {
    context: Arc<IggyContext>,
    /// `None` = clients send frames.
    site: Option<Arc<Site>>,
    connections: ConnectionTasks,
}

impl Acceptor {
    async fn run(mut self, listener: TcpListener) {
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => self.admit(stream, peer),
                    Err(error) => {
                        self.context.statistics.accept_errors.add(1);
                        let text = format!("connections cannot be accepted, and wait: {error}");
                        self.context.report(None, text);
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some(()) = self.connections.ended() => {}
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        let admission = &self.context.listener.admission;
        let descriptor = stream.as_raw_fd() as u64;
        let Some(place) = admission.take_address(peer.ip(), descriptor) else {
            let text = "a connection is refused: limits.connections_per_address of its address are open, or no descriptor \
                        is left for it; close connections, or raise the limit";
            return self.context.report(Some(peer), text.to_owned());
        };
        let is_known = Arc::<AtomicBool>::default();
        let (context, known) = (self.context.clone(), is_known.clone());
        let site = self.site.clone();
        self.connections.start(is_known, async move {
            match site {
                None => Connection::serve(context, stream, known).await,
                Some(site) => http::serve(site, stream, known).await,
            }
            drop(place);
        });
    }
}
