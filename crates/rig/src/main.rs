//! Drives the log engine without a broker: one command, `key=value` arguments. Development only; the rigs under
//! `tests/torture` start it, break something, and judge what it wrote down.
//!
//! | Command | Does |
//! |---|---|
//! | `live` | recovers every log under `dir`, writes down what is there, then appends until it is killed |
//! | `read` | recovers every log under `dir` and writes down what is there |
//! | `torn` | cuts and overwrites the tail of a log at every byte and recovers each (`dir`, `bytes`, `from`, `to`) |
//!
//! Arguments of `live` and `read`: `dir`, `ledger` (a file outside the faulted filesystem, see [`ledger`]), `run_id`
//! (number of this run on `dir`, 1 or more), `partitions`, `seed`, and the shape of the load: `batches` (0 = until
//! killed), `in_flight`, `segment` and `ahead` (bytes), `retain` (bytes a log keeps, 0 = all), `close` (1 = at the end),
//! `compact` (1 = now and then a log is compacted),
//! `delete` (after every so many batches log 0 is deleted and created again, 0 = never),
//! `journal` (dirty segments from which on the journal is used, 0 = never; `wal_bytes` and `journal_files`: its size),
//! `patience_ms` (how long an append that is refused for now is tried again). With the feature `failpoints` the
//! environment variable `FAILPOINTS` sets them.
mod accelerated_clock;
mod arguments;
mod content;

mod ledger;
mod live;
mod recovered;
mod torn;

use arguments::Arguments;
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::from_command_line();
    #[cfg(feature = "failpoints")]
    if let Err(reason) = bascule_log::failpoint::set_from_environment() {
        eprintln!("{reason}");
        return ExitCode::FAILURE;
    }
    let outcome = match arguments.command.as_str() {
        "live" => live::run(&arguments),
        "read" => live::read(&arguments),
        "torn" => torn::run(&arguments),
        other => Err(Box::<dyn Error>::from(format!("unknown command {other:?}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", arguments.command);
            ExitCode::FAILURE
        }
    }
}
