//! What follows from the sink table: which calls may stage, which pieces are void. Pure.
use super::piece::PieceId;
use super::table::{Attempt, SinkTable};

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
    /// The sink was opened again.
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
    link.is_some_and(|link| {
        is_winner(&link.attempt(), &link.winners, id) && link.target(incarnation).is_some()
    })
}

/// Whether a piece is one that an epoch takes: of this attempt to write it, and of the attempt of its task that won.
pub fn is_winner(attempt: &Attempt, winners: &[u64], id: &PieceId) -> bool {
    let winner = usize::try_from(id.task).ok();
    let winner = winner.and_then(|task| winners.get(task));
    id.attempt == *attempt && winner == Some(&id.task_attempt)
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

/// Whether the sink has just this generation.
fn is_current(table: &SinkTable, id: &PieceId) -> bool {
    let sink = table.sink(id.sink);
    sink.is_some_and(|sink| sink.generation == id.attempt.generation)
}

#[cfg(test)]
mod tests {
    use super::super::numbers::Token;
    use super::super::table::{Link, Sink, SinkChanges, Target};
    use super::*;

    const HERE: u64 = 65_536;
    const ELSEWHERE: u64 = 65_537;

    fn attempt(generation: u64, epoch: u64, token: u128) -> Attempt {
        Attempt {
            generation,
            epoch,
            token: Token(token),
        }
    }

    fn piece(attempt: Attempt) -> PieceId {
        PieceId {
            sink: 3,
            attempt,
            task: 0,
            task_attempt: 64,
        }
    }

    fn sink() -> Sink {
        Sink {
            id: 3,
            name: "default/orders".into(),
            owner: String::new(),
            generation: 10,
            last_epoch: None,
            producer: 1 << 63,
            quota_bytes: 0,
            expired: Vec::new(),
            link: None,
        }
    }

    /// The table after entry 20.
    fn table(sink: Sink) -> SinkTable {
        let changes = SinkChanges {
            sinks: vec![sink],
            removed: Vec::new(),
            complete: true,
        };
        SinkTable::default().changed(20, changes).unwrap()
    }

    #[test]
    fn a_sink_that_published_nothing_takes_any_epoch_of_its_generation() {
        let table = table(sink());
        for epoch in [0, 7, i64::MAX as u64] {
            let id = piece(attempt(10, epoch, 1));
            assert_eq!(admission(&table, &id), Admission::Open);
            assert!(!is_void(&table, HERE, &id));
        }
    }

    #[test]
    fn what_the_table_has_outlived_is_refused_by_its_reason_and_void() {
        let expired = attempt(10, 6, 9);
        let table = table(Sink {
            last_epoch: Some(5),
            expired: vec![expired],
            ..sink()
        });
        for (id, reason) in [
            (
                piece(attempt(9, 6, 1)),
                VoidReason::Fenced { generation: 10 },
            ),
            (piece(attempt(10, 5, 1)), VoidReason::Published { epoch: 5 }),
            (piece(attempt(10, 0, 1)), VoidReason::Published { epoch: 5 }),
            (piece(expired), VoidReason::Expired),
            (
                PieceId {
                    sink: 4,
                    ..piece(attempt(10, 6, 1))
                },
                VoidReason::Gone,
            ),
        ] {
            assert_eq!(admission(&table, &id), Admission::Void(reason));
            assert!(is_void(&table, HERE, &id), "{id:?}");
        }
        for id in [piece(attempt(10, 6, 1)), piece(attempt(10, 7, 9))] {
            assert_eq!(admission(&table, &id), Admission::Open);
            assert!(!is_void(&table, HERE, &id), "{id:?}");
        }
    }

    #[test]
    fn what_is_newer_than_the_table_waits_and_is_not_judged() {
        let known = table(sink());
        for id in [
            piece(attempt(11, 6, 1)),
            piece(attempt(21, 6, 1)),
            PieceId {
                sink: 21,
                ..piece(attempt(21, 6, 1))
            },
        ] {
            assert_eq!(admission(&known, &id), Admission::Unknown, "{id:?}");
            assert!(!is_void(&known, HERE, &id), "{id:?}");
        }
    }

    #[test]
    fn before_the_table_is_complete_nothing_is_decided() {
        let table = SinkTable::default().changed(20, SinkChanges::default());
        let table = table.unwrap();
        let id = piece(attempt(10, 6, 1));
        assert_eq!(admission(&table, &id), Admission::Unknown);
        assert!(!is_void(&table, HERE, &id));
        assert_eq!(table.hold(HERE), Some(0), "nothing of a log may go");
    }

    #[test]
    fn what_is_to_be_linked_is_never_void_and_all_else_of_its_epoch_is() {
        let target = Target {
            incarnation: HERE,
            rows: 1,
            digest: super::super::numbers::Digest(1),
            from_offset: 40,
        };
        // The query was replaced while its epoch is being linked.
        let link = Link {
            generation: 9,
            epoch: 5,
            token: Token(1),
            ordinal: 2,
            winners: vec![64, 65],
            targets: vec![target],
        };
        let table = table(Sink {
            link: Some(link),
            ..sink()
        });
        let winner = piece(attempt(9, 5, 1));
        let second = PieceId {
            task: 1,
            task_attempt: 65,
            ..winner
        };
        assert!(!is_void(&table, HERE, &winner) && !is_void(&table, HERE, &second));
        assert!(is_void(&table, ELSEWHERE, &winner), "linked there already");
        for loser in [
            PieceId {
                task_attempt: 63,
                ..winner
            },
            PieceId { task: 2, ..winner },
            piece(attempt(9, 5, 2)),
            piece(attempt(9, 4, 1)),
        ] {
            assert!(is_void(&table, HERE, &loser), "{loser:?}");
        }
        assert_eq!((table.hold(HERE), table.hold(ELSEWHERE)), (Some(40), None));
        assert_eq!(table.decided(HERE).count(), 1);
        let fenced = Admission::Void(VoidReason::Fenced { generation: 10 });
        assert_eq!(
            admission(&table, &winner),
            fenced,
            "and nobody stages to it"
        );
    }
}
