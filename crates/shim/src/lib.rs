//! Preloaded into a process (`LD_PRELOAD`), makes the n-th system call of a kind on files below a path fail, and syncs
//! take longer. Everything else goes to the kernel as it is.
//!
//! | Variable | Meaning |
//! |---|---|
//! | `SHIM_PATH` | absolute path prefix of the files concerned; without it nothing is done |
//! | `SHIM_FAIL` | `<kind>:<n>:<errno>:<times>`: from the n-th call of that kind on (1-based), so many fail; times 0 = all |
//! | `SHIM_HALF` | `1`: of the first failing write, half is written and reported as a short write; the next call fails |
//! | `SHIM_LEDGER` | file to which each failed call is appended, as an entry of `crates/rig/src/ledger.rs` of kind 100, and the first call of a thread after a failed sync of its own, kind 102 |
//! | `SHIM_COUNTS` | file that gets `<kind> <calls>` lines when the process ends |
//! | `SHIM_SYNC_DELAY_US` | pause before each sync, microseconds |
//! | `SHIM_NOW` | file that says what is wrong for as long as it does: `hold sync` or `hold write` (such calls wait), `full` (writes fail with `ENOSPC`); absent = nothing |
//!
//! Kinds: `open`, `write`, `sync`, `rename`, `unlink`, `truncate`, `mkdir`. Calls that bypass the C library are not seen.
mod config;
mod faults;

use faults::{Kind, fails, forget, is_ours, is_tracked, pause_before_sync, track};
use libc::{c_char, c_int, c_long, c_uint, c_void, mode_t, off_t, size_t, ssize_t};

/// Ends with what the kernel answers; the C library's `syscall` sets `errno`.
macro_rules! kernel {
    ($number:expr $(, $argument:expr)*) => {
        // SAFETY: the arguments are those the caller gave to the C function of the same contract.
        unsafe { libc::syscall($number $(, $argument)*) }
    };
}

/// Fails by path: `None` when the call is passed on.
fn refused(kind: Kind, path: *const c_char) -> Option<c_int> {
    (is_ours(path) && fails(kind)).then_some(-1)
}

/// # Safety
/// As `openat(2)`. `mode` is read as the third or fourth integer argument, where variadic callers put it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    let ours = is_ours(path);
    if ours && fails(Kind::Open) {
        return -1;
    }
    let descriptor = kernel!(libc::SYS_openat, at, path, flags, mode) as c_int;
    if ours && descriptor >= 0 {
        track(descriptor);
    }
    descriptor
}

/// # Safety
/// As `openat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { openat(at, path, flags, mode) }
}

/// # Safety
/// As `open(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the same contract.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

/// # Safety
/// As `open(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the same contract.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

/// # Safety
/// As `close(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    forget(descriptor);
    kernel!(libc::SYS_close, descriptor) as c_int
}

/// # Safety
/// As `write(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(descriptor: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    match limit_write(descriptor, count) {
        Some(count) => kernel!(libc::SYS_write, descriptor, bytes, count) as ssize_t,
        None => -1,
    }
}

/// # Safety
/// As `pwrite(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(
    descriptor: c_int,
    bytes: *const c_void,
    count: size_t,
    at: off_t,
) -> ssize_t {
    match limit_write(descriptor, count) {
        Some(count) => kernel!(libc::SYS_pwrite64, descriptor, bytes, count, at) as ssize_t,
        None => -1,
    }
}

/// # Safety
/// As `pwrite(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(
    descriptor: c_int,
    bytes: *const c_void,
    count: size_t,
    at: off_t,
) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { pwrite64(descriptor, bytes, count, at) }
}

/// How many bytes of a write go to the kernel; `None` when it fails.
fn limit_write(descriptor: c_int, count: size_t) -> Option<size_t> {
    if !is_tracked(descriptor) || !fails(Kind::Write) {
        return Some(count);
    }
    (count > 1 && faults::take_half()).then_some(count / 2)
}

/// # Safety
/// As `fsync(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(descriptor: c_int) -> c_int {
    sync(libc::SYS_fsync, descriptor)
}

/// # Safety
/// As `fdatasync(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(descriptor: c_int) -> c_int {
    sync(libc::SYS_fdatasync, descriptor)
}

/// # Safety
/// As `syncfs(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncfs(descriptor: c_int) -> c_int {
    sync(libc::SYS_syncfs, descriptor)
}

fn sync(number: c_long, descriptor: c_int) -> c_int {
    if is_tracked(descriptor) {
        pause_before_sync();
        if fails(Kind::Sync) {
            return -1;
        }
    }
    kernel!(number, descriptor) as c_int
}

/// # Safety
/// As `rename(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    refused(Kind::Rename, from).unwrap_or_else(|| {
        kernel!(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            from,
            libc::AT_FDCWD,
            to,
            0
        ) as c_int
    })
}

/// # Safety
/// As `unlink(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    refused(Kind::Unlink, path)
        .unwrap_or_else(|| kernel!(libc::SYS_unlinkat, libc::AT_FDCWD, path, 0) as c_int)
}

/// # Safety
/// As `rmdir(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    refused(Kind::Unlink, path).unwrap_or_else(|| {
        kernel!(libc::SYS_unlinkat, libc::AT_FDCWD, path, libc::AT_REMOVEDIR) as c_int
    })
}

/// # Safety
/// As `unlinkat(2)`. Paths relative to a directory count by the directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    if (is_tracked(at) || is_ours(path)) && fails(Kind::Unlink) {
        return -1;
    }
    kernel!(libc::SYS_unlinkat, at, path, flags) as c_int
}

/// # Safety
/// As `ftruncate(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(descriptor: c_int, length: off_t) -> c_int {
    if is_tracked(descriptor) && fails(Kind::Truncate) {
        return -1;
    }
    kernel!(libc::SYS_ftruncate, descriptor, length) as c_int
}

/// # Safety
/// As `ftruncate(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate(descriptor: c_int, length: off_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { ftruncate64(descriptor, length) }
}

/// # Safety
/// As `mkdir(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    refused(Kind::Mkdir, path)
        .unwrap_or_else(|| kernel!(libc::SYS_mkdirat, libc::AT_FDCWD, path, mode) as c_int)
}
