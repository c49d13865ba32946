//! The client's runtime: one per process, started on first use.
use crate::Error;
use bascule_wire::ErrorCode;
use parking_lot::Mutex;
use std::future::Future;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Polled while a call blocks: may interrupt the wait (Ctrl-C), which loses the answer but not the client.
pub type Patience<'a> = &'a mut dyn FnMut() -> ControlFlow<()>;

/// How often [`Patience`] is polled.
pub(crate) const ASK: Duration = Duration::from_millis(100);
/// One thread reads the connection, one decodes.
const THREADS: usize = 2;

/// The runtime and the id of its process; never shut down, so that dropping a client never blocks.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// A runtime of this process. Threads do not survive a fork, so a child gets its own on its first connection, and objects
/// made before the fork refuse to work in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    process: u32,
    runtime: &'static Runtime,
}
impl Home {
    /// The runtime of this process, started when there is none.
    ///
    /// # Errors
    /// `internal` when threads cannot be started.
    pub(crate) fn of_this_process() -> Result<Self, Error> {
        let process = std::process::id();
        let mut slot = RUNTIME.lock();
        if let Some((owner, runtime)) = *slot
            && owner == process
        {
            return Ok(Self { process, runtime });
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("bascule-client")
            .enable_all()
            .build()
            .map_err(|error| {
                Error::new(
                    ErrorCode::Internal,
                    format!("cannot start the client's threads: {error}"),
                )
            })?;
        let runtime = &*Box::leak(Box::new(runtime));
        *slot = Some((process, runtime));
        Ok(Self { process, runtime })
    }

    /// The runtime, unless this process is a fork of the one that made it.
    ///
    /// # Errors
    /// `forked`.
    pub(crate) fn enter(&self) -> Result<&'static Runtime, Error> {
        if self.process == std::process::id() {
            return Ok(self.runtime);
        }
        Err(Error::new(
            ErrorCode::Forked,
            "this client was connected before the process was forked and cannot work in the child; call \
             bascule.connect() in the child, after the fork",
        ))
    }

    /// Runs `future` on the calling thread and polls `patience`.
    ///
    /// # Errors
    /// `forked`; `closed` when the caller interrupted.
    pub(crate) fn block_on<T>(
        &self,
        future: impl Future<Output = T>,
        patience: Patience<'_>,
    ) -> Result<T, Error> {
        self.enter()?.block_on(async {
            let mut future = std::pin::pin!(future);
            loop {
                match tokio::time::timeout(ASK, &mut future).await {
                    Ok(output) => return Ok(output),
                    Err(_) if patience().is_break() => {
                        return Err(Error::new(ErrorCode::Closed, "the wait was interrupted"));
                    }
                    Err(_) => {}
                }
            }
        })
    }
}
