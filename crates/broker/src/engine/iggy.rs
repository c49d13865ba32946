//! The listeners for Iggy's clients.
use super::serve::Listening;
use super::{Engine, EngineError};
use crate::iggy::{self, IggyContext, IggyHttpSettings, QuicListening};
use std::sync::Arc;

/// What serves Iggy's clients; ended when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    frames: Option<Listening>,
    http: Option<Listening>,
    quic: Option<QuicListening>,
    /// Of all, which share groups, positions and turns.
    context: Option<Arc<IggyContext>>,
}

impl Listeners {
    /// Ends them. Says to clients of QUIC that the broker stops: nothing else would before their time limit.
    pub(super) async fn close(self) {
        if let Some(quic) = self.quic {
            quic.close().await;
        }
    }
}

impl Engine {
    /// Binds and serves Iggy's clients; port 0 = any free one. Returns the bound port.
    ///
    /// # Errors
    /// `address_in_use`, `address_unusable`, `closed`.
    pub fn serve_iggy(&self, host: &str, port: u16) -> Result<u16, EngineError> {
        let runtime = self.runtime()?;
        let _inside = runtime.enter();
        let (listening, bound) = iggy::listen(self.iggy_context(), host, port)?;
        self.state.lock().iggy.frames = Some(listening);
        Ok(bound)
    }

    /// The same for clients that speak HTTP, on another port.
    ///
    /// # Errors
    /// `address_in_use`, `address_unusable`, `closed`.
    pub fn serve_iggy_http(
        &self,
        host: &str,
        port: u16,
        settings: IggyHttpSettings,
    ) -> Result<u16, EngineError> {
        let runtime = self.runtime()?;
        let _inside = runtime.enter();
        let (listening, bound) = iggy::listen_http(self.iggy_context(), settings, host, port)?;
        self.state.lock().iggy.http = Some(listening);
        Ok(bound)
    }

    /// The same for clients that speak QUIC, on a port of UDP.
    ///
    /// # Errors
    /// `address_in_use`, `address_unusable`, `closed`; `internal`: no certificate could be made.
    pub fn serve_iggy_quic(&self, host: &str, port: u16) -> Result<u16, EngineError> {
        let runtime = self.runtime()?;
        let _inside = runtime.enter();
        let (listening, bound) = iggy::listen_quic(self.iggy_context(), host, port)?;
        self.state.lock().iggy.quic = Some(listening);
        Ok(bound)
    }

    fn iggy_context(&self) -> Arc<IggyContext> {
        let mut state = self.state.lock();
        let made = state.iggy.context.get_or_insert_with(|| self.parts.iggy());
        made.clone()
    }
}
