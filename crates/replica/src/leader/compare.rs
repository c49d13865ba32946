//! The comparison of a follower's position with the leader's log: same history, or where it branches.
use crate::leader::{Fetch, Found, Outcome};
use crate::types::{Boundary, EpochEnd};

/// What the leader's log holds at its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stored {
    /// Log start: what is below was removed by a decision. 0 until it is known from a valid checkpoint or this epoch.
    pub log_start: u64,
    /// First stored offset: between the log start and it lies damage.
    pub first: u64,
}

/// The answer that ends a comparison, or `None` if the follower's history is a prefix of the leader's.
///
/// No answer that makes a follower truncate rests on a batch that the leader cannot read (W29), and `Reset` is only for
/// ends below the log start (W30).
pub fn compare(fetch: &Fetch, found: &Found, stored: Stored) -> Option<Outcome> {
    let end = fetch.position.end;
    if end < stored.log_start && end < stored.first {
        return Some(Outcome::Reset {
            start: stored.log_start.min(stored.first),
        });
    }
    if let Some((start, after)) = found.lost_range.filter(|&(start, _)| start == end) {
        return Some(Outcome::Damaged { start, end: after });
    }
    if end < stored.first {
        return Some(Outcome::Busy {
            repair_below: Some(stored.first),
        });
    }
    if end == 0 {
        return None;
    }
    // A follower of epochs that this log never had starts at the first stored offset (N63).
    let Some(EpochEnd {
        epoch,
        end: epoch_end,
    }) = found.epoch_end
    else {
        return Some(Outcome::Diverged {
            epoch: 0,
            end: stored.first,
        });
    };
    match found.at_end {
        Boundary::Damaged => Some(Outcome::Busy { repair_below: None }),
        Boundary::Inside { below } => Some(Outcome::Diverged { epoch, end: below }),
        _ if epoch != fetch.position.epoch || end > epoch_end => Some(Outcome::Diverged {
            epoch,
            end: epoch_end,
        }),
        Boundary::Link(link) if link == fetch.position.link => None,
        Boundary::Link(_) => Some(Outcome::StepBack),
        // Above the log start and at most the end of an epoch, yet outside: the look-up is older than the fetch.
        Boundary::Outside => Some(Outcome::Busy { repair_below: None }),
    }
}
