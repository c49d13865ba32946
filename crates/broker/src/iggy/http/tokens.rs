//! Who a token stands for, as the control plane has said: kept until it expires, so that requests about messages do not wait
//! for the control plane.
use bascule_wire::iggy::Generation;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Tokens that are kept; beyond that all are asked about again.
const MOST: usize = 10_000;

/// Who has sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bearer {
    /// Id of the user.
    pub(super) user: u64,
    /// How numbers count and which shapes JSON has.
    pub(super) generation: Generation,
}

#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<HashMap<String, Kept>>);

#[derive(Debug)]
struct Kept {
    /// `None`: it was revoked, which a slow answer about it does not undo.
    bearer: Option<Bearer>,
    until: Instant,
}

/// What is known about a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    Valid(Bearer),
    Revoked,
    /// The control plane has to be asked.
    Unknown,
}

impl Tokens {
    pub(super) fn find(&self, token: &str) -> Known {
        let tokens = self.0.lock();
        match tokens.get(token) {
            Some(kept) if kept.until > Instant::now() => {
                kept.bearer.map_or(Known::Revoked, Known::Valid)
            }
            _ => Known::Unknown,
        }
    }

    /// Keeps what the control plane has said about a token for so long.
    pub(super) fn keep(&self, token: &str, bearer: Bearer, valid: Duration) {
        let now = Instant::now();
        let mut tokens = self.0.lock();
        if tokens.get(token).is_some_and(|kept| kept.bearer.is_none()) {
            return;
        }
        if tokens.len() >= MOST {
            tokens.retain(|_, kept| kept.until > now);
        }
        if tokens.len() >= MOST {
            tokens.retain(|_, kept| kept.bearer.is_none());
        }
        let kept = Kept {
            bearer: Some(bearer),
            until: now + valid,
        };
        tokens.insert(token.to_owned(), kept);
    }

    /// The token is not valid any more. `rest`: how long it would have been.
    pub(super) fn revoke(&self, token: &str, rest: Duration) {
        let kept = Kept {
            bearer: None,
            until: Instant::now() + rest,
        };
        self.0.lock().insert(token.to_owned(), kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEARER: Bearer = Bearer {
        user: 1,
        generation: Generation::V2,
    };
    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn a_token_is_known_until_it_expires_or_is_revoked() {
        let tokens = Tokens::default();
        assert_eq!(tokens.find("a"), Known::Unknown);
        tokens.keep("a", BEARER, HOUR);
        tokens.keep("b", BEARER, Duration::ZERO);
        assert_eq!(tokens.find("a"), Known::Valid(BEARER));
        assert_eq!(tokens.find("b"), Known::Unknown);
        tokens.revoke("a", HOUR);
        tokens.keep("a", BEARER, HOUR);
        assert_eq!(tokens.find("a"), Known::Revoked);
    }

    #[test]
    fn a_bounded_number_is_kept_and_none_that_was_revoked_is_forgotten() {
        let tokens = Tokens::default();
        tokens.revoke("revoked", HOUR);
        for number in 0..MOST + 5 {
            tokens.keep(&number.to_string(), BEARER, HOUR);
        }
        assert!(tokens.0.lock().len() <= MOST);
        assert_eq!(tokens.find("revoked"), Known::Revoked);
        assert_eq!(tokens.find(&(MOST + 4).to_string()), Known::Valid(BEARER));
    }
}
