//! Data keys.
use super::{NONCE_BYTES, TAG_BYTES};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use std::sync::Arc;

/// Length of a data key, bytes.
pub const SECRET_BYTES: usize = 32;

/// A key for payloads. Cheap to clone. Its debug output shows only its number.
#[derive(Clone)]
pub struct DataKey {
    id: u32,
    key: Arc<LessSafeKey>,
}

impl DataKey {
    /// The key `secret` under the number `id` ≥ 1. `None` for number 0, which stands for "not encrypted".
    pub fn new(id: u32, secret: &[u8; SECRET_BYTES]) -> Option<Self> {
        let key = UnboundKey::new(&AES_256_GCM, secret).ok()?;
        (id != 0).then(|| Self {
            id,
            key: Arc::new(LessSafeKey::new(key)),
        })
    }

    /// Its number in batch headers, ≥ 1.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Encrypts `payload` in place and returns the tag; `None` when it is too long (64 GiB). The caller never uses a nonce twice.
    pub(crate) fn seal(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        payload: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(associated), payload);
        sealed.ok()?.as_ref().try_into().ok()
    }

    /// The payload of `stored` (ciphertext and tag); `None` when the tag does not match.
    pub(crate) fn open(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        stored: &[u8],
    ) -> Option<Vec<u8>> {
        let mut payload = stored.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self
            .key
            .open_in_place(nonce, Aad::from(associated), &mut payload);
        let length = opened.ok()?.len();
        payload.truncate(length);
        Some(payload)
    }
}

impl std::fmt::Debug for DataKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Why there is no data key of a number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyLack {
    /// The stream's metadata do not list it.
    #[error("it is not among the stream's keys")]
    Unknown,
    /// Its master key is not configured.
    #[error("its master key {master:?} is not configured")]
    NoMaster {
        /// Id of the master key.
        master: String,
    },
    /// The configured master key of that id is another one, or the wrapped key was changed.
    #[error("it does not unwrap with the configured master key {master:?}")]
    WrongMaster {
        /// Id of the master key.
        master: String,
    },
}
