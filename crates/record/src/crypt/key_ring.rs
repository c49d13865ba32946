//! The data keys of one stream.
use super::{DataKey, Entropy, KeyLack, SealError, Sealer, SystemEntropy};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Data keys by number, including unavailable ones with the reason. Immutable; cheap to clone.
#[derive(Clone, Debug)]
pub struct KeyRing {
    keys: Arc<BTreeMap<u32, Result<DataKey, KeyLack>>>,
    entropy: Arc<dyn Entropy>,
}

impl Default for KeyRing {
    /// No keys: new batches are not encrypted, encrypted ones do not open.
    fn default() -> Self {
        Self::new([])
    }
}

impl KeyRing {
    /// The keys by number. The highest number seals new batches; if that key is unavailable, nothing is sealed. Without any key
    /// batches are not encrypted.
    pub fn new(keys: impl IntoIterator<Item = (u32, Result<DataKey, KeyLack>)>) -> Self {
        Self {
            keys: Arc::new(keys.into_iter().collect()),
            entropy: Arc::new(SystemEntropy),
        }
    }

    /// The same keys; sealers draw their nonces' random bytes from `entropy`.
    #[must_use]
    pub fn with_entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// The key of a number.
    ///
    /// # Errors
    /// [`KeyLack`]: why there is none.
    pub fn get(&self, id: u32) -> Result<&DataKey, KeyLack> {
        match self.keys.get(&id) {
            Some(Ok(key)) => Ok(key),
            Some(Err(lack)) => Err(lack.clone()),
            None => Err(KeyLack::Unknown),
        }
    }

    /// Number of the key that seals new batches; `None` = they are not encrypted.
    pub fn current(&self) -> Option<u32> {
        self.keys.last_key_value().map(|(id, _)| *id)
    }

    /// A sealer for one writer; `None` = its batches are not encrypted.
    ///
    /// # Errors
    /// [`SealError`]: the current key is unavailable, or there are no random bytes.
    pub fn sealer(&self) -> Result<Option<Sealer>, SealError> {
        let Some(key_id) = self.current() else {
            return Ok(None);
        };
        let key = self
            .get(key_id)
            .map_err(|lack| SealError::Key { key_id, lack })?;
        Sealer::new(key.clone(), Arc::clone(&self.entropy)).map(Some)
    }
}
