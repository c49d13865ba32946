//! The thread of one connection: its client reads the socket there and hands messages to the partitions' queues. It may be
//! blocked for a while to leave messages with the server, which keeps that away from the threads that answer requests.
use std::io;
use std::sync::Arc;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

/// A thread with a runtime of its own; ends when dropped.
pub(crate) struct NatsThread {
    handle: Handle,
    stop: Arc<Notify>,
}

impl NatsThread {
    /// Starts it; `name` has at most 15 bytes.
    ///
    /// # Errors
    /// When the system gives no thread, or no descriptors for the runtime.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                runtime.block_on(stopped.notified());
                // Whatever still runs there ends; a name look-up may take its time.
                runtime.shutdown_background();
            })?;
        Ok(Self { handle, stop })
    }

    /// To run something on it.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends it and all that runs on it, soon.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }
}

impl Drop for NatsThread {
    fn drop(&mut self) {
        self.stop();
    }
}
