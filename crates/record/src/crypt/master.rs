//! Master keys, which wrap data keys.
use super::{
    DataKey, Entropy, EntropyError, KeyLack, KeyRing, NONCE_BYTES, SECRET_BYTES, TAG_BYTES,
};
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// Length of a wrapped data key: nonce, ciphertext, tag.
const WRAPPED_BYTES: usize = NONCE_BYTES + SECRET_BYTES + TAG_BYTES;
/// Begins the associated data of a wrapping, so that a wrapped key can be nothing else.
const PURPOSE: &[u8] = b"bascule data key 1";

/// A data key as metadata carry it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// Number of the data key within its stream, ≥ 1.
    pub id: u32,
    /// Id of the master key that wraps it.
    pub master: String,
    /// Nonce (12 bytes), then the secret encrypted with AES-GCM (32 bytes and a tag of 16); associated data: the text
    /// `bascule data key 1` and the number, u32 little-endian.
    pub wrapped: Vec<u8>,
}

/// A key that cannot be used as a master key. The text never contains its bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MasterKeyError {
    /// AES takes 16 or 32 bytes. The text is that of Liftbridge.
    #[error("invalid AES key size {bytes}")]
    Size {
        /// Bytes given.
        bytes: usize,
    },
}

/// A key that wraps data keys. Its debug output shows only its id.
pub struct MasterKey {
    id: String,
    key: LessSafeKey,
}

impl MasterKey {
    /// A key of 16 (AES-128) or 32 (AES-256) bytes.
    ///
    /// # Errors
    /// [`MasterKeyError::Size`].
    pub fn new(id: impl Into<String>, secret: &[u8]) -> Result<Self, MasterKeyError> {
        let bytes = secret.len();
        let algorithm = match bytes {
            16 => &AES_128_GCM,
            32 => &AES_256_GCM,
            _ => return Err(MasterKeyError::Size { bytes }),
        };
        let key = UnboundKey::new(algorithm, secret).map_err(|_| MasterKeyError::Size { bytes })?;
        Ok(Self {
            id: id.into(),
            key: LessSafeKey::new(key),
        })
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A new data key of the number `id`, wrapped.
    ///
    /// # Errors
    /// [`EntropyError`].
    pub fn new_data_key(&self, id: u32, entropy: &dyn Entropy) -> Result<WrappedKey, EntropyError> {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        entropy.fill(&mut *secret)?;
        let mut nonce = [0; NONCE_BYTES];
        entropy.fill(&mut nonce)?;
        let tag = self
            .key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated(id)),
                &mut *secret,
            )
            .map_err(|_| EntropyError)?;
        let wrapped = [&nonce[..], &secret[..], tag.as_ref()].concat();
        Ok(WrappedKey {
            id,
            master: self.id.clone(),
            wrapped,
        })
    }

    /// The data key, when this key wrapped it.
    fn unwrap(&self, wrapped: &WrappedKey) -> Option<DataKey> {
        let bytes: &[u8; WRAPPED_BYTES] = wrapped.wrapped.as_slice().try_into().ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let secret = self
            .key
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(associated(wrapped.id)),
                &mut sealed,
            )
            .ok()?;
        DataKey::new(wrapped.id, secret.first_chunk()?)
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MasterKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

fn associated(id: u32) -> Vec<u8> {
    [PURPOSE, &id.to_le_bytes()].concat()
}

/// The configured master keys.
#[derive(Debug, Default)]
pub struct MasterKeys {
    keys: BTreeMap<String, MasterKey>,
    current: Option<String>,
}

impl MasterKeys {
    /// `current` wraps new data keys; the others only unwrap old ones.
    pub fn new(keys: impl IntoIterator<Item = MasterKey>, current: Option<String>) -> Self {
        Self {
            keys: keys.into_iter().map(|key| (key.id.clone(), key)).collect(),
            current,
        }
    }

    /// The master key that wraps new data keys, if it is configured.
    pub fn current(&self) -> Option<&MasterKey> {
        self.keys.get(self.current.as_deref()?)
    }

    /// The key ring of a stream with these data keys. Keys that do not unwrap are in it with the reason.
    pub fn unwrap<'a>(&self, wrapped: impl IntoIterator<Item = &'a WrappedKey>) -> KeyRing {
        KeyRing::new(wrapped.into_iter().map(|wrapped| {
            let master = || wrapped.master.clone();
            let key = match self.keys.get(&wrapped.master) {
                None => Err(KeyLack::NoMaster { master: master() }),
                Some(key) => key
                    .unwrap(wrapped)
                    .ok_or_else(|| KeyLack::WrongMaster { master: master() }),
            };
            (wrapped.id, key)
        }))
    }
}
