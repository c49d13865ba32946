//! What a piece is called: its identity, and the name of its file.

use super::numbers::Token;
use super::table::Attempt;
use std::path::Path;

/// How file names of sealed pieces end.
const EXTENSION: &str = "piece";

/// Whose rows a piece holds. Within the stage folder of a partition it names one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PieceId {
    /// Id of the sink's record.
    pub sink: u64,
    /// The attempt to write the epoch.
    pub attempt: Attempt,
    /// Task partition, below 10,000.
    pub task: u32,
    /// Attempt of the task.
    pub task_attempt: u64,
}

impl PieceId {
    /// In the order of pieces none of the sink is before this one.
    pub(super) fn first_of(sink: u64) -> Self {
        let attempt = Attempt {
            generation: 0,
            epoch: 0,
            token: Token(0),
        };
        Self {
            sink,
            attempt,
            task: 0,
            task_attempt: 0,
        }
    }

    /// In the order of pieces none of the sink is behind this one.
    pub(super) fn last_of(sink: u64) -> Self {
        let attempt = Attempt {
            generation: u64::MAX,
            epoch: u64::MAX,
            token: Token(u128::MAX),
        };
        Self {
            sink,
            attempt,
            task: u32::MAX,
            task_attempt: u64::MAX,
        }
    }

    /// Name of its file once it is sealed: `<sink>-<generation>-<epoch>-<token>-<task>-<attempt>.piece`, decimal but for
    /// the token.
    pub fn file_name(&self) -> String {
        let Attempt {
            generation,
            epoch,
            token,
        } = self.attempt;
        let Self {
            sink,
            task,
            task_attempt,
            ..
        } = self;
        format!("{sink}-{generation}-{epoch}-{token}-{task}-{task_attempt}.{EXTENSION}")
    }

    /// The piece that a file of this name is; `None` = the name is not one of a sealed piece.
    pub fn of_file(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let mut parts = name.strip_suffix(EXTENSION)?.strip_suffix('.')?.split('-');
        let mut next = || parts.next();
        let id = Self {
            sink: next()?.parse().ok()?,
            attempt: Attempt {
                generation: next()?.parse().ok()?,
                epoch: next()?.parse().ok()?,
                token: next()?.parse().ok()?,
            },
            task: next()?.parse().ok()?,
            task_attempt: next()?.parse().ok()?,
        };
        // Only the name that a piece is given, not `007` or `+7`.
        (id.file_name() == name).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_known_by_its_file_name_and_nothing_else_is() {
        let id = PieceId {
            sink: 7,
            attempt: Attempt {
                generation: 8,
                epoch: i64::MAX as u64,
                token: Token(15),
            },
            task: 9999,
            task_attempt: 64,
        };
        let name = id.file_name();
        assert_eq!(
            name,
            "7-8-9223372036854775807-0000000000000000000000000000000f-9999-64.piece"
        );
        assert_eq!(PieceId::of_file(Path::new(&name)), Some(id));
        for other in [
            "7-8-9-0000000000000000000000000000000f-1-64.tmp",
            "07-8-9-0000000000000000000000000000000f-1-64.piece",
            "7-8-9-f-1-64.piece",
            "7-8-9-0000000000000000000000000000000f-1-64-2.piece",
            "7-8-9-0000000000000000000000000000000f-1.piece",
            "-.piece",
            ".piece",
            "piece",
        ] {
            assert_eq!(PieceId::of_file(Path::new(other)), None, "{other}");
        }
    }
}
