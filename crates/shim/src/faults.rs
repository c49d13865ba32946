//! Which calls concern us, which of them fail, and writing that down.
use crate::config::config;
use libc::{c_char, c_int};
use std::cell::Cell;
use std::ffi::CStr;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Opening or making a file.
    Open,
    /// Writing.
    Write,
    /// Syncing a file or a directory.
    Sync,
    /// Renaming.
    Rename,
    /// Removing a name.
    Unlink,
    /// Cutting or lengthening.
    Truncate,
    /// Making a directory.
    Mkdir,
}

/// Kind of an entry: a call was made to fail.
const FAULT: u64 = 100;
/// Kind of an entry: the first call of a thread after its failed sync.
const WENT_ON: u64 = 102;

const KINDS: [(Kind, &str); 7] = [
    (Kind::Open, "open"),
    (Kind::Write, "write"),
    (Kind::Sync, "sync"),
    (Kind::Rename, "rename"),
    (Kind::Unlink, "unlink"),
    (Kind::Truncate, "truncate"),
    (Kind::Mkdir, "mkdir"),
];

impl Kind {
    /// By its name in `SHIM_FAIL`.
    pub fn named(name: &str) -> Option<Self> {
        KINDS
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(kind, _)| *kind)
    }
}

static CALLS: [AtomicU64; KINDS.len()] = [const { AtomicU64::new(0) }; KINDS.len()];
static HALF_TAKEN: AtomicBool = AtomicBool::new(false);

/// Between two looks at what is wrong.
const LOOK: Duration = Duration::from_millis(5);

/// Descriptors of our files, by number. Beyond this many nothing is tracked.
const TRACKED: usize = 1 << 16;
static FILES: [AtomicBool; TRACKED] = [const { AtomicBool::new(false) }; TRACKED];

/// Whether the path lies below the prefix.
pub fn is_ours(path: *const c_char) -> bool {
    let prefix = &config().prefix;
    if prefix.is_empty() || path.is_null() {
        return false;
    }
    // SAFETY: not null, and the caller of the C function promised a string that ends with NUL.
    let path = unsafe { CStr::from_ptr(path) };
    path.to_bytes().starts_with(prefix)
}

/// Remembers a descriptor of one of our files.
pub fn track(descriptor: c_int) {
    if let Some(file) = FILES.get(descriptor as usize) {
        file.store(true, Ordering::Relaxed);
    }
}

/// Forgets a descriptor that is about to be closed.
pub fn forget(descriptor: c_int) {
    if let Some(file) = FILES.get(descriptor as usize) {
        file.store(false, Ordering::Relaxed);
    }
}

/// Whether the descriptor is of one of our files.
pub fn is_tracked(descriptor: c_int) -> bool {
    FILES
        .get(descriptor as usize)
        .is_some_and(|file| file.load(Ordering::Relaxed))
}

thread_local! {
    /// A sync has failed on this thread, and no call came after it.
    static SYNC_FAILED: Cell<bool> = const { Cell::new(false) };
}

/// Counts a call; when it has to fail, writes that down, sets `errno` and answers `true`. The first call of a thread after
/// a failed sync of its own is written down, too.
pub fn fails(kind: Kind) -> bool {
    if SYNC_FAILED.replace(false) {
        write_down(WENT_ON, kind, 0, 0);
    }
    if is_ill(kind) {
        // SAFETY: the C library's place for `errno` of this thread is always there.
        unsafe { *libc::__errno_location() = libc::ENOSPC };
        return true;
    }
    let Some(calls) = CALLS.get(kind as usize) else {
        return false;
    };
    let number = calls.fetch_add(1, Ordering::SeqCst) + 1;
    let Some(fault) = config().fault.filter(|fault| fault.kind == kind) else {
        return false;
    };
    if number < fault.first || number - fault.first >= fault.times {
        return false;
    }
    SYNC_FAILED.set(kind == Kind::Sync);
    write_down(FAULT, kind, number, fault.errno);
    // SAFETY: the C library's place for `errno` of this thread is always there.
    unsafe { *libc::__errno_location() = fault.errno };
    true
}

/// Waits while calls of this kind are held; whether it has to fail for want of space.
fn is_ill(kind: Kind) -> bool {
    let Some(file) = &config().now else {
        return false;
    };
    let held = match kind {
        Kind::Sync => "hold sync",
        Kind::Write => "hold write",
        _ => return false,
    };
    loop {
        let wrong = std::fs::read_to_string(file).unwrap_or_default();
        if wrong.trim() != held {
            return kind == Kind::Write && wrong.trim() == "full";
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether this failing write is the one to be cut short.
pub fn take_half() -> bool {
    config().fault.is_some_and(|fault| fault.half) && !HALF_TAKEN.swap(true, Ordering::SeqCst)
}

/// Pauses as long as a slow disk would.
pub fn pause_before_sync() {
    let delay = config().sync_delay_us;
    if delay > 0 {
        std::thread::sleep(Duration::from_micros(delay));
    }
}

/// Appends an entry: partition = kind of call, offset = its number, count = errno, `run_id` = 1 when the thread is the one that
/// answers commits, extra = the thread's number.
fn write_down(entry_kind: u64, kind: Kind, number: u64, errno: i32) {
    let Some(path) = &config().ledger else {
        return;
    };
    let committer = thread_name().starts_with(b"log-commit");
    let mut entry = [0_u8; 40];
    // SAFETY: the call has no arguments and always succeeds.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
    let fields: [(usize, u64, usize); 6] = [
        (0, entry_kind, 4),
        (4, kind as u64, 4),
        (8, number, 8),
        (16, u64::from(errno.unsigned_abs()), 4),
        (20, u64::from(committer), 4),
        (32, thread, 8),
    ];
    for (at, value, bytes) in fields {
        for (place, byte) in entry
            .iter_mut()
            .skip(at)
            .zip(value.to_le_bytes().into_iter().take(bytes))
        {
            *place = byte;
        }
    }
    append(path, &entry);
}

/// Name of this thread; one without a name of its own has that of the thread that started it.
fn thread_name() -> [u8; 16] {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most 16 bytes to the address.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// Appends to a file that is none of ours, past this library's own functions.
fn append(path: &CStr, bytes: &[u8]) {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT;
    // SAFETY: the path ends with NUL, the buffer is as long as said, and the descriptor is ours until it is closed.
    unsafe {
        let file = libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            0o644,
        );
        if file >= 0 {
            libc::syscall(libc::SYS_write, file, bytes.as_ptr(), bytes.len());
            libc::syscall(libc::SYS_close, file);
        }
    }
}

/// Runs when the process ends by itself.
extern "C" fn report_counts() {
    if let Some(path) = &config().counts {
        let mut lines = String::new();
        for ((_, name), calls) in KINDS.iter().zip(&CALLS) {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{name} {}", calls.load(Ordering::SeqCst));
        }
        append(path, lines.as_bytes());
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_END: extern "C" fn() = report_counts;
