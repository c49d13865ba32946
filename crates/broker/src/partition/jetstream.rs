//! Conditions of JetStream publishers, decided where the record is appended (`docs/decisions/jetstream-acks.md`).
use super::message_ids::{MessageIds, hash_message_id};
use super::writer::Writer;
use super::{IncomingRecord, RejectReason};
use bascule_wire::jetstream::{Control, MESSAGE_ID, Refusal};

/// What a partition knows of message ids.
#[derive(Debug)]
pub(super) enum Ids {
    /// The stream does not acknowledge JetStream publishers.
    Off,
    /// The window, and now by its clock, as of the group being taken.
    Known(Box<MessageIds>, i64),
    /// It could not be read, and why: messages that need it are refused.
    Unknown(String),
}

impl Ids {
    /// Between groups: forgets what has expired.
    pub fn begin_group(&mut self) {
        if let Self::Known(ids, now) = self {
            *now = ids.now();
            ids.expire(*now);
        }
    }

    /// What was remembered for records at `end` and above was not stored.
    pub fn take_back(&mut self, end: u64) {
        if let Self::Known(ids, _) = self {
            ids.take_back(end);
        }
    }

    /// The record with this id is at `offset`.
    pub fn insert(&mut self, id: &[u8], offset: u64) {
        if let Self::Known(ids, now) = self
            && !id.is_empty()
        {
            ids.insert(id, offset, *now);
        }
    }

    fn window(&self) -> Result<(&MessageIds, i64), RejectReason> {
        match self {
            Self::Known(ids, now) => Ok((ids, *now)),
            Self::Unknown(why) => Err(RejectReason::Refused(Refusal::Unavailable(why.clone()))),
            Self::Off => Err(RejectReason::Refused(Refusal::Unavailable(
                "the stream keeps no message ids".to_owned(),
            ))),
        }
    }
}

impl Writer {
    pub(super) fn acknowledges_jetstream(&self) -> bool {
        !matches!(self.ids, Ids::Off)
    }

    /// Decides whether a record may get `offset`, the next one; its id, empty = none. An enveloped message has conditions of
    /// its own, only its id counts.
    ///
    /// # Errors
    /// [`RejectReason::Duplicate`], [`RejectReason::Refused`].
    pub(super) fn check_conditions<'a>(
        &self,
        record: &'a IncomingRecord,
        offset: u64,
    ) -> Result<&'a [u8], RejectReason> {
        if !self.acknowledges_jetstream() {
            return Ok(b"");
        }
        let control = if record.is_plain_nats {
            Control::read(&record.headers).map_err(RejectReason::Refused)?
        } else {
            Control {
                id: id_of(record),
                ..Control::default()
            }
        };
        control
            .check_stream(&self.spec.stream, offset)
            .map_err(RejectReason::Refused)?;
        if control.id.is_empty() && control.last_id.is_empty() {
            return Ok(b"");
        }
        let (ids, now) = self.ids.window()?;
        if !control.id.is_empty()
            && let Some(original) = ids.find(control.id, now)
        {
            return Err(RejectReason::Duplicate(original));
        }
        control
            .check_last_id(ids.last_id(offset))
            .map_err(RejectReason::Refused)?;
        if !control.id.is_empty() && !ids.has_room(control.id) {
            return Err(RejectReason::Refused(Refusal::WindowFull));
        }
        Ok(control.id)
    }
}

/// The text of a record's id; empty when it has none.
fn id_of(record: &IncomingRecord) -> &[u8] {
    if record.id == 0 {
        return b"";
    }
    let mut headers = record.headers.iter();
    headers
        .find(|(name, value)| &name[..] == MESSAGE_ID && hash_message_id(value) == record.id)
        .map_or(b"", |(_, value)| value)
}
