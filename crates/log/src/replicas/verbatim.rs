//! Appending batches that another replica has stored, as they are.
use crate::log::Log;
use crate::segment::scan::LogPosition;
use crate::{Appended, Error};
use bascule_record::{Batches, DamageError, HEADER_BYTES, Header};
use bytes::Bytes;

impl Log {
    /// Appends stored batches as they are: `bytes` holds at least one whole batch and nothing else. Readers see them once the
    /// high watermark has passed them.
    ///
    /// The first one begins at the log end and follows the last batch of this log by its chain; each other one follows the one
    /// before it. All are of this log, and no leader epoch is below the one before it. All of this is checked before the first
    /// batch is written, payload checksums included. Encrypted batches stay encrypted; no key is needed.
    ///
    /// `now_ns`: time of day, for rolling by age only. When an error comes while writing, a prefix of the batches may have been
    /// appended: see [`crate::LogReader::log_end`].
    ///
    /// # Errors
    /// [`Error::NotNext`]: the first batch begins elsewhere. [`Error::Diverged`]: a batch has another history than this log, or
    /// than the batch before it. [`Error::StaleEpoch`], [`Error::Batch`]. Nothing was appended with these. Others as
    /// [`Log::append`].
    pub fn append_verbatim(&mut self, bytes: Bytes, now_ns: i64) -> Result<Appended, Error> {
        self.committer.check_usable()?;
        let batches = self.checked(bytes)?;
        let (Some((first, _)), Some((last, _))) = (batches.first(), batches.last()) else {
            let short = DamageError::Short {
                need: HEADER_BYTES,
                have: 0,
            };
            return Err(Error::Batch { source: short });
        };
        let appended = Appended {
            base_offset: first.base_offset,
            next_offset: last.next_offset(),
            base_timestamp: first.base_timestamp,
        };
        for (header, bytes) in &batches {
            if self.roll_due(now_ns) {
                self.roll(now_ns)?;
            }
            self.write(bytes, header)?;
        }
        Ok(appended)
    }

    /// The batches with their headers, if all of them may be appended.
    fn checked(&self, bytes: Bytes) -> Result<Vec<(Header, Bytes)>, Error> {
        let mut place = LogPosition {
            chain: Some(self.chain),
            epoch: self.epochs.last(),
            ..LogPosition::at(0, self.shared.log_end())
        };
        let mut batches = Vec::new();
        for bytes in Batches::new(bytes) {
            let bytes = bytes.map_err(|source| Error::Batch { source })?;
            let header = Header::read(&bytes).map_err(|source| Error::Batch { source })?;
            self.check_next(&place, &header)?;
            header
                .check_payload(&bytes)
                .map_err(|source| Error::Batch { source })?;
            place = place.after(&header);
            batches.push((header, bytes));
        }
        Ok(batches)
    }

    fn check_next(&self, place: &LogPosition, header: &Header) -> Result<(), Error> {
        let identity = self.shared.identity;
        let path = || self.directory.to_path_buf();
        if (header.incarnation, header.partition) != (identity.incarnation, identity.partition) {
            return Err(Error::Foreign {
                path: path(),
                incarnation: identity.incarnation,
                partition: identity.partition,
                found_incarnation: header.incarnation,
                found_partition: header.partition,
            });
        }
        if header.base_offset != place.offset {
            return Err(Error::NotNext {
                path: path(),
                expected: place.offset,
                got: header.base_offset,
            });
        }
        if header.leader_epoch < place.epoch {
            return Err(Error::StaleEpoch {
                path: path(),
                got: header.leader_epoch,
                current: place.epoch,
            });
        }
        if place.fits(header, identity) {
            return Ok(());
        }
        Err(Error::Diverged {
            path: path(),
            offset: header.base_offset,
        })
    }
}
