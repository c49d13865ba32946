//! Answers that their clients have not read yet.
//!
//! HTTP/2 keeps an answer in memory until the client takes it, and a client may ask for much and take nothing. So the bytes
//! of an answer are charged to `limits.answer_bytes` from the moment it is complete until the connection has sent it. One
//! client may have half of them. A connection that does not take an answer in time is closed.
use super::caller::Identity;
use super::connection::Closer;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tonic::Status;

/// Smaller answers are part of what an open call costs.
pub(super) const SMALL: u64 = 4 << 10;

/// The bytes of all answers that wait.
#[derive(Debug)]
pub(crate) struct Answers {
    taken: Mutex<Taken>,
    most: usize,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    shares: HashMap<Identity, usize>,
}

/// The bytes of one answer, given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    answers: Arc<Answers>,
    identity: Identity,
    bytes: usize,
    deadline: Option<AbortHandle>,
}

/// A buffer that holds its charge.
struct Charged {
    bytes: Bytes,
    _charge: Charge,
}

impl Answers {
    /// At most `most` bytes.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            taken: Mutex::default(),
            most,
        })
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.taken.lock().all
    }

    /// Room for an answer to `identity`. A client without any may have one that is larger than its share.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`.
    pub(crate) fn charge(
        self: &Arc<Self>,
        identity: &Identity,
        bytes: usize,
    ) -> Result<Charge, Status> {
        let mut taken = self.taken.lock();
        let own = taken.shares.get(identity).copied().unwrap_or_default();
        let fits = own == 0 || own.saturating_add(bytes) <= self.most / 2;
        if !fits || taken.all.saturating_add(bytes) > self.most {
            let (all, most) = (taken.all, self.most);
            return Err(Status::resource_exhausted(format!(
                "the answer of {bytes} bytes finds no room in limits.answer_bytes ({most}): {all} bytes of answers wait to be read, \
                 {own} of them by {identity}, who may have half: read them, ask for less at once, or raise it"
            )));
        }
        taken.all += bytes;
        *taken.shares.entry(identity.clone()).or_default() += bytes;
        Ok(Charge {
            answers: self.clone(),
            identity: identity.clone(),
            bytes,
            deadline: None,
        })
    }
}

impl Charge {
    /// Closes the connection unless the answer is sent within `longest`.
    pub(super) fn with_deadline(mut self, closer: Arc<Closer>, longest: Duration) -> Self {
        let deadline = tokio::spawn(async move {
            tokio::time::sleep(longest).await;
            closer.close();
        });
        self.deadline = Some(deadline.abort_handle());
        self
    }

    /// The same bytes; the charge is given back with the last slice of them.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Charged {
            bytes,
            _charge: self,
        })
    }
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(deadline) = &self.deadline {
            deadline.abort();
        }
        let mut taken = self.answers.taken.lock();
        taken.all = taken.all.saturating_sub(self.bytes);
        if let Some(own) = taken.shares.get_mut(&self.identity) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                taken.shares.remove(&self.identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Identity {
        Identity::Name(name.into())
    }

    #[test]
    fn a_client_may_have_half_and_all_clients_the_whole() {
        let answers = Answers::new(100);
        let first = answers.charge(&named("a"), 30).unwrap();
        let refused = answers.charge(&named("a"), 21).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(refused.message().contains("limits.answer_bytes (100)"));
        let second = answers.charge(&named("a"), 20).unwrap();
        let large = answers.charge(&named("b"), 50).unwrap();
        assert!(answers.charge(&named("c"), 1).is_err());
        drop((first, second));
        assert!(answers.charge(&named("c"), 50).is_ok());
        drop(large);
        assert!(answers.charge(&named("c"), 101).is_err());
        assert!(answers.charge(&named("c"), 100).is_ok(), "one may be large");
        assert_eq!(answers.bytes(), 0);
        assert!(answers.taken.lock().shares.is_empty(), "nothing is kept");
    }

    #[test]
    fn a_charge_lasts_as_long_as_any_slice_of_its_bytes() {
        let answers = Answers::new(100);
        let charge = answers.charge(&named("a"), 10).unwrap();
        let mut whole = charge.hold(Bytes::from_static(b"0123456789"));
        let head = whole.split_to(4);
        drop(whole);
        assert_eq!((&head[..], answers.bytes()), (&b"0123"[..], 10));
        drop(head);
        assert_eq!(answers.bytes(), 0);
    }

    #[tokio::test]
    async fn an_answer_that_is_not_sent_in_time_closes_its_connection() {
        let answers = Answers::new(100);
        let closers = [Arc::<Closer>::default(), Arc::default()];
        let [sent, unread] = closers.clone().map(|closer| {
            let charge = answers.charge(&named("a"), 10).unwrap();
            charge.with_deadline(closer, Duration::from_millis(20))
        });
        drop(sent);
        let limit = std::time::Instant::now() + Duration::from_mins(1);
        while !closers[1].is_closed() {
            assert!(std::time::Instant::now() < limit);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!closers[0].is_closed());
        drop(unread);
    }
}
