//! Where a log meets its keys: the writer seals what it appends, readers open what they look into.
//!
//! Nothing else in this crate needs a key: chains, checksums, recovery, look-ups in indexes and removal work on headers
//! and stored bytes. A key that is missing refuses appends and the batches it sealed, and nothing more.
use crate::{Error, Log, LogReader};
use bascule_record::crypt::KeyRing;
use bascule_record::{Batch, DamageError, SealedBatch, Stamp};
use bytes::Bytes;

impl Log {
    /// The batch at its place, encrypted when the log has keys.
    pub(crate) fn stamped(&mut self, batch: SealedBatch, stamp: &Stamp) -> Result<Bytes, Error> {
        self.check_sealing()?;
        match &mut self.sealer {
            Some(sealer) => batch
                .stamp_encrypted(stamp, sealer)
                .map_err(|source| Error::Encryption { source }),
            None => Ok(batch.stamp(stamp)),
        }
    }

    /// Whether appends can be encrypted, where they have to be.
    ///
    /// # Errors
    /// [`Error::Encryption`]: the current key is not there. Appends are refused until [`Log::set_options`] brings it.
    pub fn check_sealing(&mut self) -> Result<(), Error> {
        if self.sealer.is_none() {
            let made = self.options.keys.sealer();
            self.sealer = made.map_err(|source| Error::Encryption { source })?;
        }
        Ok(())
    }

    /// Takes over keys: batches that come from now on are sealed by the current one.
    pub(crate) fn set_keys(&mut self, keys: &KeyRing) {
        // The next append makes a new sealer, with random bytes of its own.
        self.sealer = None;
        self.shared.set_keys(keys);
    }
}

impl LogReader {
    /// The keys of this log as they are now.
    pub fn keys(&self) -> KeyRing {
        self.shared.keys()
    }

    /// A checked view of one batch (of [`bascule_record::Batches`]) that a cursor of this log returned.
    ///
    /// # Errors
    /// See [`Batch::open`]. [`DamageError::is_locked`]: this batch needs a key that is not there, and is as it was
    /// written.
    pub fn open(&self, bytes: &Bytes) -> Result<Batch, DamageError> {
        Batch::open(bytes, &self.keys())
    }
}
