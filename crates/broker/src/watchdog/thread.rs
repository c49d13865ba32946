//! The thread that looks at the event loop, and at the signals that the process gets.
use super::{EventLoop, WatchSettings, line};
use crate::events::{Events, Level};
use rustix::process::{Signal, getpid, kill_process};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Between two looks …
const LOOK: Duration = Duration::from_secs(1);
/// … and when a signal waits to be handled.
const LOOK_SIGNALLED: Duration = Duration::from_millis(100);
/// How long the loop may take to react to a signal, in which it is not known to be blocked.
const REACTION: Duration = Duration::from_secs(1);
/// The interpreter has written its whole stack when nothing came for so long.
const STACK_QUIET: Duration = Duration::from_millis(300);
/// Longest stack that is read, bytes.
const STACK_BYTES: usize = 64 << 10;
/// The signal that makes the interpreter write its stack.
const STACK_SIGNAL: Signal = Signal::USR2;
/// Beyond the drain time, how long this side may take to close everything.
const CLOSE: Duration = Duration::from_secs(30);
/// Exit codes: stopped in order; ended at once by a second signal; the stop did not come to its end.
const STOPPED: i32 = 0;
const INTERRUPTED: i32 = 130;
const UNFINISHED: i32 = 1;

/// The broker, stopped by the watchdog on a signal when the event loop does not run.
pub trait Stop: Send + Sync + 'static {
    /// Closes everything cleanly, within about `drain`. Blocks.
    fn stop(&self, drain: Duration);
}

/// The process's ends of the watchdog's sockets. The watchdog closes them when it is dropped; duplicate them to write for
/// longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Takes the number of each signal, one byte.
    pub signals: RawFd,
    /// Takes the interpreter's stack.
    pub stacks: RawFd,
}

/// A running watchdog; ends with the engine that it watches over.
#[derive(Debug)]
pub struct Watchdog {
    signals: UnixStream,
    stacks: UnixStream,
}

impl Watchdog {
    /// Starts the thread. `engine` is stopped on a signal that the event loop does not handle; the thread ends when it is
    /// gone.
    ///
    /// # Errors
    /// When the system gives no sockets or no thread.
    pub fn start(
        events: Arc<Events>,
        event_loop: Arc<EventLoop>,
        settings: WatchSettings,
        engine: Weak<impl Stop>,
    ) -> io::Result<Self> {
        let (signals, signals_in) = UnixStream::pair()?;
        let (stacks, stacks_in) = UnixStream::pair()?;
        for end in [&signals, &stacks] {
            end.set_nonblocking(true)?;
        }
        stacks_in.set_read_timeout(Some(STACK_QUIET))?;
        event_loop.beat();
        let watch = Watch {
            events,
            event_loop,
            settings,
            engine,
            signals: signals_in,
            stacks: stacks_in,
            reported: Duration::ZERO,
            asked: None,
        };
        std::thread::Builder::new()
            .name("bascule-watch".to_owned())
            .spawn(move || watch.run())?;
        Ok(Self { signals, stacks })
    }

    /// See [`Descriptors`].
    pub fn descriptors(&self) -> Descriptors {
        Descriptors {
            signals: self.signals.as_raw_fd(),
            stacks: self.stacks.as_raw_fd(),
        }
    }
}

struct Watch<S> {
    events: Arc<Events>,
    event_loop: Arc<EventLoop>,
    settings: WatchSettings,
    engine: Weak<S>,
    signals: UnixStream,
    stacks: UnixStream,
    /// The silence that was last written about; zero = the loop runs.
    reported: Duration,
    /// The first signal that asks to stop, and when it came.
    asked: Option<(Signal, Instant)>,
}

impl<S: Stop> Watch<S> {
    fn run(mut self) {
        loop {
            let pause = if self.asked.is_some() {
                LOOK_SIGNALLED
            } else {
                LOOK
            };
            let mut numbers = [0; 16];
            let came = self
                .signals
                .set_read_timeout(Some(pause))
                .and_then(|()| self.signals.read(&mut numbers));
            // The engine keeps the other end, so its end is the end of the watch.
            match came {
                Ok(0) => return,
                Ok(count) => self.note_signals(&numbers[..count]),
                Err(error) if is_passing(&error) => {}
                Err(_) => return,
            }
            if self.engine.strong_count() == 0 {
                return;
            }
            self.look();
            self.stop_if_asked();
        }
    }

    fn event_loop(&self) -> &EventLoop {
        &self.event_loop
    }

    fn silence(&self) -> Duration {
        self.event_loop().last_beat().elapsed()
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(self.settings.limit_ms)
    }

    /// Reports a loop that is blocked when its silence begins, and whenever that has doubled.
    fn look(&mut self) {
        let silence = self.silence();
        if silence < self.limit() {
            if !self.reported.is_zero() {
                self.reported = Duration::ZERO;
                self.event_loop().set_blocked(false);
                let text = "the event loop of the control plane runs again".to_owned();
                self.events
                    .log(Level::Warning, "watchdog", text, serde_json::json!({}));
            }
            return;
        }
        self.event_loop().set_blocked(true);
        if self.reported.is_zero() || silence >= self.reported * 2 {
            self.reported = silence;
            let stack = self.stack();
            let text = format!(
                "the event loop of the control plane has not run for {:.1} s: admin requests wait, data is served",
                silence.as_secs_f64()
            );
            self.write(text, &stack);
        }
    }

    fn write(&self, text: String, stack: &str) {
        let fields = serde_json::json!({"silent_ms": self.silence().as_millis()});
        match self.settings.log {
            Some(style) => line::write(style, &text, &fields, stack),
            None => self.events.log(Level::Error, "watchdog", text, fields),
        }
    }

    /// What the interpreter's main thread is at; its handler of the signal needs no interpreter lock.
    fn stack(&mut self) -> String {
        let mut stack = Vec::new();
        if self.settings.owns_process && kill_process(getpid(), STACK_SIGNAL).is_ok() {
            let mut part = [0; 4096];
            while stack.len() < STACK_BYTES
                && let Ok(count) = self.stacks.read(&mut part)
                && count > 0
            {
                stack.extend_from_slice(&part[..count]);
            }
        }
        String::from_utf8_lossy(&stack).into_owned()
    }

    fn note_signals(&mut self, numbers: &[u8]) {
        for &number in numbers {
            let asks = [Signal::TERM, Signal::INT]
                .into_iter()
                .find(|signal| signal.as_raw() == i32::from(number));
            let Some(signal) = asks else { continue };
            match self.asked {
                None => self.asked = Some((signal, Instant::now())),
                // One that comes so soon is the same request: `timeout` sends to a process and to its group.
                Some((_, since)) if since.elapsed() >= REACTION && self.is_deaf(since) => {
                    std::process::exit(INTERRUPTED);
                }
                Some(_) => {}
            }
        }
    }

    /// Whether the loop has not run since.
    fn is_deaf(&self, since: Instant) -> bool {
        self.event_loop().last_beat() < since
    }

    fn stop_if_asked(&mut self) {
        let Some((signal, since)) = self.asked else {
            return;
        };
        if !self.is_deaf(since) {
            self.asked = None; // the loop handles it
            return;
        }
        if since.elapsed() < REACTION || self.silence() < self.limit() {
            return;
        }
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        let name = if signal == Signal::TERM {
            "SIGTERM"
        } else {
            "SIGINT"
        };
        let text = format!(
            "stopping after {name} without the control plane, whose event loop does not run"
        );
        self.write(text, "");
        let drain = Duration::from_millis(self.settings.drain_ms);
        let late = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(drain + CLOSE);
            std::process::exit(UNFINISHED);
        });
        drop(late);
        engine.stop(drain);
        self.write("stopped".to_owned(), "");
        std::process::exit(STOPPED);
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
