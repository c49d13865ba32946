//! What follows from the sink table: which calls may stage, which pieces are void. Pure.
use super::piece::PieceId;
use super::table::{Link, Sink, SinkTable};

/// Whether a call may stage rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Open,
    /// The table is older than the call: it may become known.
    Unknown,
    /// It may not, for ever.
    Void(VoidReason),
}

/// Why pieces are void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoidReason {
    /// The record is gone.
    Gone,
    /// The sink was opened anew.
    Fenced {
        /// Generation of the sink now.
        generation: u64,
    },
    /// An epoch at least as high was decided.
    Published {
        /// The last one.
        epoch: u64,
    },
    /// The attempt expired or was aborted.
    Expired,
}

/// Whether rows may be staged under `id`, on a broker that knows `table`.
pub fn admission(table: &SinkTable, id: &PieceId) -> Admission {
    if !table.is_complete() {
        return Admission::Unknown;
    }
    match void_reason(table, id) {
        Some(reason) => Admission::Void(reason),
        None if is_current(table, id) => Admission::Open,
        None => Admission::Unknown,
    }
}

/// Whether a piece of the partition `incarnation` may be deleted.
pub fn is_void(table: &SinkTable, incarnation: u64, id: &PieceId) -> bool {
    table.is_complete() && !is_decided(table, incarnation, id) && void_reason(table, id).is_some()
}

/// Whether a piece is to be linked: it is never void. This comes before every other rule.
fn is_decided(table: &SinkTable, incarnation: u64, id: &PieceId) -> bool {
    let link = table.sink(id.sink).and_then(|sink| sink.link.as_ref());
    link.is_some_and(|link| is_winner(link, id) && link.target(incarnation).is_some())
}

/// Whether a piece is of the attempts that a decided epoch takes.
pub fn is_winner(link: &Link, id: &PieceId) -> bool {
    let winner = usize::try_from(id.task).ok();
    let winner = winner.and_then(|task| link.winners.get(task));
    id.attempt == link.attempt() && winner == Some(&id.task_attempt)
}

/// Why a piece that is not decided is void; `None` = it may still be published, or the table is too old to judge it.
fn void_reason(table: &SinkTable, id: &PieceId) -> Option<VoidReason> {
    let attempt = &id.attempt;
    if attempt.generation > table.version() {
        return None;
    }
    let Some(sink) = table.sink(id.sink) else {
        return Some(VoidReason::Gone);
    };
    let published = sink.last_epoch.filter(|last| attempt.epoch <= *last);
    match (sink.generation, published) {
        (generation, _) if attempt.generation < generation => {
            Some(VoidReason::Fenced { generation })
        }
        (generation, _) if attempt.generation > generation => None,
        (_, Some(epoch)) => Some(VoidReason::Published { epoch }),
        _ if sink.expired.contains(attempt) => Some(VoidReason::Expired),
        _ => None,
    }
}

fn is_current(table: &SinkTable, id: &PieceId) -> bool {
    let generation = |sink: &std::sync::Arc<Sink>| sink.generation;
    table.sink(id.sink).map(generation) == Some(id.attempt.generation)
}
