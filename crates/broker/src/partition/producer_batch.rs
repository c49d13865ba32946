//! Records of an idempotent producer: one batch of their own, stored whole, once, or not at all.
use super::commit::{AppendReply, InFlight};
use super::writer::Writer;
use super::{AckLevel, AppendError, IncomingRecord, NatsCopy, RejectReason, Rejected};
use bascule_log::Appended;
use bascule_record::{BatchBuilder, BatchLimits, Producer};

/// Whoever takes records in bounds them far below.
const LIMITS: BatchLimits = BatchLimits {
    records: 16 << 10,
    bytes: 128 << 20,
    record_bytes: 64 << 20,
};

/// What became of the records.
enum Stored {
    /// They lie in the log; whether they did before.
    As(Appended, bool),
    /// One of them cannot be stored, so none was.
    Refused(Vec<Rejected>),
}

impl Writer {
    /// Takes the records into the group as a batch of `producer`, or finds the one that they were stored as before.
    pub(super) fn take_produced(
        &mut self,
        records: Vec<IncomingRecord>,
        producer: Producer,
        reply: AppendReply,
        mode: NatsCopy,
    ) {
        self.seal();
        if let Some(error) = &self.broken {
            return reply.answer(Err(error.clone()));
        }
        let (appended, rejected, duplicate) = match self.store(&records, producer) {
            Ok(Stored::As(appended, duplicate)) => (appended, Vec::new(), duplicate),
            Ok(Stored::Refused(rejected)) => {
                let end = self.partition.0.reader.log_end();
                let nowhere = Appended {
                    base_offset: end,
                    next_offset: end,
                    base_timestamp: self.timestamp,
                };
                (nowhere, rejected, false)
            }
            Err(error) => return reply.answer(Err(error)),
        };
        let count = (records.len() - rejected.len()) as u32;
        let records = self
            .partition
            .0
            .subscriber_hint
            .keep(mode, records, &rejected);
        self.group.push(InFlight {
            reply,
            ack: AckLevel::All,
            base_offset: appended.base_offset,
            timestamp: appended.base_timestamp,
            count,
            records,
            rejected,
            duplicate,
            refers_to: 0,
            mode,
        });
    }

    fn store(
        &mut self,
        records: &[IncomingRecord],
        producer: Producer,
    ) -> Result<Stored, AppendError> {
        let count = records.len() as u32;
        match self.log.find_duplicate(producer, count, self.timestamp) {
            Some(Ok(appended)) => return Ok(Stored::As(appended, true)),
            Some(Err(error)) => return Err(AppendError::Sequence(error)),
            None => {}
        }
        let usual = std::mem::replace(&mut self.builder, BatchBuilder::new(LIMITS));
        let refused = self.gather(records);
        let (codec, subject) = (self.spec.codec(), Some(self.spec.subject.as_str()));
        let sealed = match refused {
            None => self.builder.seal(codec, Some(producer), subject),
            Some(_) => None,
        };
        self.builder = usual;
        match (refused, sealed) {
            (Some(refused), _) => Ok(Stored::Refused(all_but(&refused, count))),
            (None, Some(batch)) => self
                .append(batch)
                .map(|appended| Stored::As(appended, false)),
            (None, None) => Ok(Stored::Refused(Vec::new())),
        }
    }

    /// Puts the records into the builder; the one that cannot be stored.
    fn gather(&mut self, records: &[IncomingRecord]) -> Option<Rejected> {
        let mut headers = Vec::new();
        records.iter().enumerate().find_map(|(index, record)| {
            let reason = self.push(record, &mut headers).err()?;
            let index = index as u32;
            Some(Rejected { index, reason })
        })
    }
}

/// The others of a batch are refused with the one that cannot be stored.
fn all_but(refused: &Rejected, count: u32) -> Vec<Rejected> {
    let reason_of = |index| {
        if index == refused.index {
            refused.reason.clone()
        } else {
            RejectReason::Batch
        }
    };
    (0..count)
        .map(|index| Rejected {
            index,
            reason: reason_of(index),
        })
        .collect()
}
