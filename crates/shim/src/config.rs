//! What the environment asks for, read once.
use crate::faults::Kind;
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// One kind of call that is made to fail.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Which calls.
    pub kind: Kind,
    /// The first that fails, from 1.
    pub first: u64,
    /// How many fail; `u64::MAX` = all that follow.
    pub times: u64,
    /// What they answer.
    pub errno: i32,
    /// The first failing write is a short one.
    pub half: bool,
}

/// The whole.
#[derive(Debug, Default)]
pub struct Config {
    /// Prefix of the paths concerned; empty = none.
    pub prefix: Vec<u8>,
    /// What fails.
    pub fault: Option<Fault>,
    /// Where failures are written down.
    pub ledger: Option<CString>,
    /// Where the counts go at the end.
    pub counts: Option<CString>,
    /// Pause before each sync, microseconds.
    pub sync_delay_us: u64,
    /// What is wrong at a moment.
    pub now: Option<PathBuf>,
}

static CONFIG: OnceLock<Config> = OnceLock::new();

/// What was asked for when the first call came.
pub fn config() -> &'static Config {
    CONFIG.get_or_init(|| Config {
        prefix: bytes("SHIM_PATH").unwrap_or_default(),
        fault: text("SHIM_FAIL").map(|text| fault(&text)),
        ledger: path("SHIM_LEDGER"),
        counts: path("SHIM_COUNTS"),
        sync_delay_us: text("SHIM_SYNC_DELAY_US")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
        now: std::env::var_os("SHIM_NOW").map(PathBuf::from),
    })
}

fn bytes(name: &str) -> Option<Vec<u8>> {
    std::env::var_os(name).map(OsStringExt::into_vec)
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn path(name: &str) -> Option<CString> {
    CString::new(bytes(name)?).ok()
}

/// `<kind>:<n>:<errno>:<times>`; anything else ends the process, since a rig that breaks nothing would prove nothing.
fn fault(description: &str) -> Fault {
    let fields: Vec<&str> = description.split(':').collect();
    let parsed = match fields.as_slice() {
        [kind, first, errno, times] => Kind::named(kind)
            .zip(first.parse().ok())
            .zip(errno.parse().ok())
            .zip(times.parse().ok()),
        _ => None,
    };
    let Some((((kind, first), errno), times)) = parsed else {
        eprintln!("SHIM_FAIL={description} is no <kind>:<n>:<errno>:<times>");
        std::process::exit(99);
    };
    Fault {
        kind,
        first,
        errno,
        times: if times == 0 { u64::MAX } else { times },
        half: text("SHIM_HALF").is_some_and(|value| value == "1"),
    }
}
