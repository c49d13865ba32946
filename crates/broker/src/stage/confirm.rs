//! Confirms what is claimed to be staged, and reports what is (`specs/formats/seam.md`, "Sink table").
use super::file::PieceFile;
use super::numbers::{Digest, Token};
use super::piece::PieceId;
use super::rules;
use super::store::{Stage, sum};
use super::table::Attempt;
use bascule_log::failpoint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;

/// `Engine.confirm_stage`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmRequest {
    /// Id of the sink's record.
    pub sink: u64,
    /// Generation of the pieces.
    pub generation: u64,
    /// Epoch of the pieces.
    pub epoch: u64,
    /// Token of the pieces.
    pub token: Token,
    /// The attempt of each task, by task.
    pub winners: Vec<u64>,
    /// What is claimed.
    pub targets: Vec<Claim>,
}

/// What is claimed to be staged for one partition.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Claim {
    pub incarnation: u64,
    pub rows: u64,
    pub digest: Digest,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Confirmation {
    /// What does not agree; empty = all does.
    pub missing: Vec<Missing>,
    /// Of each target that is open here, by incarnation: the end of what is committed and synced in its log. No row of an epoch that
    /// is decided after this answer can lie below it.
    pub from_offsets: BTreeMap<u64, u64>,
}

/// A partition that does not hold what is claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Missing {
    pub incarnation: u64,
    pub reason: String,
}

/// What one attempt to write an epoch has staged here: `Engine.staged`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StagedAttempt {
    /// Id of the sink's record.
    pub sink: u64,
    /// Generation.
    pub generation: u64,
    /// Epoch.
    pub epoch: u64,
    /// Token.
    pub token: Token,
    /// Since a call of the attempt began, sent a record batch (also an empty one) or was sealed, or since the start.
    pub idle_ms: u64,
    /// Of the files of sealed pieces.
    pub bytes: u64,
    /// Sealed pieces.
    pub pieces: u64,
    /// Partitions that have some, ascending.
    pub incarnations: Vec<u64>,
}

impl Stage {
    /// Checks what is claimed; `from_offset` gives the end of what a partition's log keeps in any crash, or why it is not to be had.
    /// Waits for the disk.
    pub fn confirm(
        &self,
        request: &ConfirmRequest,
        from_offset: impl Fn(u64) -> Result<u64, String>,
    ) -> Confirmation {
        let mut answer = Confirmation::default();
        let mut needed = 0_u64;
        for claim in &request.targets {
            let checked = from_offset(claim.incarnation).and_then(|from| {
                answer.from_offsets.insert(claim.incarnation, from);
                self.check_claim(request, claim)
            });
            match checked {
                Ok(bytes) => needed = needed.saturating_add(bytes),
                Err(reason) => answer.missing.push(Missing {
                    incarnation: claim.incarnation,
                    reason,
                }),
            }
        }
        answer.missing.extend(self.unclaimed(request));
        let free = self.free_bytes().unwrap_or(u64::MAX);
        if answer.missing.is_empty() && needed > free {
            let reason = format!(
                "publishing stores {needed} bytes a second time, and {free} bytes are free"
            );
            answer
                .missing
                .extend(request.targets.iter().map(|claim| Missing {
                    incarnation: claim.incarnation,
                    reason: reason.clone(),
                }));
        }
        failpoint::pass("stage.confirmed");
        answer
    }

    /// Bytes of the pieces that are claimed, or what does not agree.
    fn check_claim(&self, request: &ConfirmRequest, claim: &Claim) -> Result<u64, String> {
        let incarnation = claim.incarnation;
        let winners = self.winners_of(request, incarnation);
        let folder = self.folder(incarnation);
        let pieces = winners
            .iter()
            .map(|(id, _)| PieceFile::open(&folder, incarnation, id))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|fault| fault.to_string())?;
        let (rows, digest) = sum(&pieces);
        let count = pieces.len();
        if rows != claim.rows {
            let claimed = claim.rows;
            return Err(format!(
                "{claimed} rows are claimed, and {rows} are staged here in {count} pieces"
            ));
        }
        if digest != claim.digest {
            return Err(format!(
                "the {rows} rows staged here in {count} pieces are not those that are claimed"
            ));
        }
        Ok(winners.iter().map(|(_, bytes)| bytes).sum())
    }

    /// Winners that lie in partitions of which nothing is claimed: their rows would be lost.
    fn unclaimed(&self, request: &ConfirmRequest) -> Vec<Missing> {
        let incarnations: Vec<u64> = self.index().incarnations().collect();
        let claimed = |incarnation: &u64| {
            let mut targets = request.targets.iter();
            targets.any(|claim| claim.incarnation == *incarnation)
        };
        let others = incarnations.into_iter().filter(|other| !claimed(other));
        others
            .filter_map(|incarnation| {
                let pieces = self.winners_of(request, incarnation).len();
                (pieces > 0).then(|| Missing {
                    incarnation,
                    reason: format!("{pieces} pieces are staged here, and none is claimed"),
                })
            })
            .collect()
    }

    fn winners_of(&self, request: &ConfirmRequest, incarnation: u64) -> Vec<(PieceId, u64)> {
        let attempt = Attempt {
            generation: request.generation,
            epoch: request.epoch,
            token: request.token,
        };
        let index = self.index();
        let pieces = index.of_attempt(incarnation, request.sink, attempt);
        pieces
            .filter(|(id, _)| rules::is_winner(&attempt, &request.winners, id))
            .map(|(id, bytes)| (*id, bytes))
            .collect()
    }

    /// What is staged here, by sink and attempt; also of partitions that are paused.
    pub fn staged(&self) -> Vec<StagedAttempt> {
        let staged = self.index().staged(Instant::now());
        staged
            .into_iter()
            .map(|((sink, attempt), staged)| StagedAttempt {
                sink,
                generation: attempt.generation,
                epoch: attempt.epoch,
                token: attempt.token,
                idle_ms: staged.idle_ms,
                bytes: staged.bytes,
                pieces: staged.pieces,
                incarnations: staged.incarnations,
            })
            .collect()
    }
}
