//! Encrypts the batches of one writer.
use super::{DataKey, Entropy, EntropyError, KeyLack, NONCE_BYTES, TAG_BYTES};
use std::sync::Arc;

/// Random bytes at the front of a nonce; the rest counts.
const PREFIX_BYTES: usize = 9;
/// Batches under one prefix: as many as 3 bytes count.
const PER_PREFIX: u32 = 1 << 24;

/// Why a payload was not encrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// There is no key to encrypt with.
    #[error("data key {key_id} cannot be used: {lack}")]
    Key {
        /// Its number.
        key_id: u32,
        /// Why not.
        lack: KeyLack,
    },
    /// An encrypted batch would have become a plain one.
    #[error("an encrypted batch cannot be rewritten without a key")]
    Plain,
    /// No random bytes for a nonce.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// Longer than the cipher takes.
    #[error("a payload of {bytes} bytes cannot be encrypted")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
}

/// A data key and the nonces of one writer. Not shared and not stored: every writer creates a new one.
#[derive(Debug)]
pub struct Sealer {
    key: DataKey,
    entropy: Arc<dyn Entropy>,
    prefix: [u8; PREFIX_BYTES],
    used: u32,
}

impl Sealer {
    /// A sealer with random bytes of its own.
    ///
    /// # Errors
    /// [`SealError::Entropy`].
    pub fn new(key: DataKey, entropy: Arc<dyn Entropy>) -> Result<Self, SealError> {
        let mut prefix = [0; PREFIX_BYTES];
        entropy.fill(&mut prefix)?;
        Ok(Self {
            key,
            entropy,
            prefix,
            used: 0,
        })
    }

    /// Number of its key.
    pub fn key_id(&self) -> u32 {
        self.key.id()
    }

    /// A nonce that this key has not seen; see the module of this crate for what that rests on.
    ///
    /// # Errors
    /// [`SealError::Entropy`], once in 2^24 calls.
    pub fn next_nonce(&mut self) -> Result<[u8; NONCE_BYTES], SealError> {
        if self.used == PER_PREFIX {
            self.entropy.fill(&mut self.prefix)?;
            self.used = 0;
        }
        let mut nonce = [0; NONCE_BYTES];
        let (prefix, counter) = nonce.split_at_mut(PREFIX_BYTES);
        prefix.copy_from_slice(&self.prefix);
        counter.copy_from_slice(&self.used.to_le_bytes()[..NONCE_BYTES - PREFIX_BYTES]);
        self.used += 1;
        Ok(nonce)
    }

    /// Encrypts `payload` in place.
    pub(crate) fn seal(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        payload: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], SealError> {
        let bytes = payload.len();
        self.key
            .seal(nonce, associated, payload)
            .ok_or(SealError::TooLarge { bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// Fills every byte with the number of the call.
    #[derive(Debug, Default)]
    struct Counting(AtomicU8);
    impl Entropy for Counting {
        fn fill(&self, out: &mut [u8]) -> Result<(), EntropyError> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                3 => Err(EntropyError),
                call => {
                    out.fill(call + 1);
                    Ok(())
                }
            }
        }
    }

    #[test]
    fn a_prefix_is_drawn_at_the_start_and_after_every_2_to_the_24_batches() {
        let entropy: Arc<dyn Entropy> = Arc::new(Counting::default());
        let key = DataKey::new(1, &[0; 32]).unwrap();
        let mut sealer = Sealer::new(key.clone(), Arc::clone(&entropy)).unwrap();
        assert_eq!(
            sealer.next_nonce().unwrap(),
            *b"\x01\x01\x01\x01\x01\x01\x01\x01\x01\0\0\0"
        );
        assert_eq!(
            sealer.next_nonce().unwrap(),
            *b"\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\0\0"
        );
        sealer.used = PER_PREFIX - 1;
        assert_eq!(
            sealer.next_nonce().unwrap(),
            *b"\x01\x01\x01\x01\x01\x01\x01\x01\x01\xff\xff\xff"
        );
        assert_eq!(
            sealer.next_nonce().unwrap()[..10],
            *b"\x02\x02\x02\x02\x02\x02\x02\x02\x02\0"
        );
        assert_eq!(
            Sealer::new(key, Arc::clone(&entropy)).unwrap().prefix,
            [3; PREFIX_BYTES]
        );
        sealer.used = PER_PREFIX;
        assert_eq!(
            sealer.next_nonce(),
            Err(SealError::Entropy(EntropyError)),
            "a used prefix is not used on"
        );
    }
}
