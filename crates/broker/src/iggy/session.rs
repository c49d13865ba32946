//! Sessions of v2: what a connection has from its login on, and which of its requests were answered.
//!
//! A request that changes something has a number above those before it. The last one that was answered is kept with its
//! answer: the same request again is answered alike and does nothing. A send whose outcome is not known keeps its producer, so
//! that the same send again is stored once.
use super::producers::Lease;
use bascule_wire::iggy::v2::{RequestHeader, body_checksum};
use bytes::Bytes;

/// Largest answer that is kept, bytes. Those of sends and offsets have less than 100.
const MOST_KEPT: usize = 64 << 10;

/// The session of a connection.
#[derive(Debug)]
pub(super) struct Session {
    /// Number that the client chose.
    client: u128,
    /// Number that the login returned; never 0.
    number: u64,
    answered: Option<Answered>,
    /// The send of this number was not answered with its outcome.
    unknown: Option<(u64, Lease)>,
}

/// The last request that was carried out or refused for good.
#[derive(Debug)]
struct Answered {
    request: u64,
    operation: u8,
    body: u64,
    status: u32,
    /// `None`: it is too large.
    answer: Option<Bytes>,
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Carry it out.
    New,
    /// It was answered like this: status and body.
    Repeated(u32, Bytes),
    /// Another request had its number, or its answer is not kept.
    Used,
}

impl Session {
    pub(super) fn new(client: u128, number: u64) -> Self {
        Self {
            client,
            number,
            answered: None,
            unknown: None,
        }
    }

    /// Whether a request belongs to this session.
    pub(super) fn has(&self, header: &RequestHeader) -> bool {
        (header.client, header.session) == (self.client, self.number)
    }

    /// What a request with a number of its own is to this session.
    pub(super) fn turn(&self, header: &RequestHeader, body: &[u8]) -> Turn {
        let Some(last) = &self.answered else {
            return Turn::New;
        };
        if header.request > last.request {
            return Turn::New;
        }
        let is_same = header.request == last.request
            && header.operation == last.operation
            && body_checksum(body) == last.body;
        match &last.answer {
            Some(answer) if is_same => Turn::Repeated(last.status, answer.clone()),
            _ => Turn::Used,
        }
    }

    /// Keeps the answer to a request, which has its number from now on.
    pub(super) fn answered(
        &mut self,
        header: &RequestHeader,
        body: &[u8],
        status: u32,
        answer: &Bytes,
    ) {
        self.answered = Some(Answered {
            request: header.request,
            operation: header.operation,
            body: body_checksum(body),
            status,
            answer: (answer.len() <= MOST_KEPT).then(|| answer.clone()),
        });
    }

    /// The producer of the send of this number, if it came before and its outcome was not known. That of another send is
    /// given up.
    pub(super) fn take_unknown(&mut self, request: u64) -> Option<Lease> {
        let (of, lease) = self.unknown.take()?;
        (of == request).then_some(lease)
    }

    /// The outcome of the send of this number is not known.
    pub(super) fn keep_unknown(&mut self, request: u64, lease: Lease) {
        self.unknown = Some((request, lease));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iggy::producers::Producers;

    fn header(request: u64) -> RequestHeader {
        RequestHeader {
            body_bytes: 0,
            client: 5,
            checksum: 0,
            timestamp: 0,
            request,
            operation: 160,
            session: 9,
            code: 0,
        }
    }

    #[test]
    fn a_request_is_carried_out_once_and_its_number_is_used_once() {
        let mut session = Session::new(5, 9);
        assert!(session.has(&header(1)));
        assert!(!session.has(&RequestHeader {
            session: 8,
            ..header(1)
        }));
        assert!(!session.has(&RequestHeader {
            client: 6,
            ..header(1)
        }));
        assert_eq!(session.turn(&header(4), b"a"), Turn::New);
        session.answered(&header(4), b"a", 0, &Bytes::from_static(b"done"));
        let done = Turn::Repeated(0, Bytes::from_static(b"done"));
        assert_eq!(session.turn(&header(4), b"a"), done);
        assert_eq!(session.turn(&header(4), b"b"), Turn::Used);
        assert_eq!(session.turn(&header(3), b"a"), Turn::Used);
        let other = RequestHeader {
            operation: 161,
            ..header(4)
        };
        assert_eq!(session.turn(&other, b"a"), Turn::Used);
        assert_eq!(session.turn(&header(9), b"a"), Turn::New);
        session.answered(&header(9), b"", 0, &vec![0; MOST_KEPT + 1].into());
        assert_eq!(session.turn(&header(9), b""), Turn::Used);
    }

    #[test]
    fn a_send_that_is_repeated_has_its_producer_again() {
        let producers = Producers::default();
        let mut session = Session::new(5, 9);
        let lease = producers.take(7);
        let producer = lease.producer();
        session.keep_unknown(4, lease);
        let again = session.take_unknown(4).unwrap();
        assert_eq!(again.producer(), producer);
        session.keep_unknown(4, again);
        assert_eq!(session.take_unknown(5), None);
        assert_eq!(session.take_unknown(4), None);
    }
}
