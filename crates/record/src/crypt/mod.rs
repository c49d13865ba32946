//! Encryption of batch payloads at rest: AES-256-GCM, one data key per stream, data keys wrapped by master keys.
//!
//! * [`MasterKeys`]: what the operator configures. They encrypt data keys and nothing else.
//! * [`DataKey`]: encrypts payloads. It travels wrapped; its number stands in the header of every batch it sealed.
//! * [`KeyRing`]: the data keys of one stream by number. Readers open batches with it; the highest number seals new ones.
//! * [`Sealer`]: encrypts for one writer, with a data key and nonces of its own.
//!
//! Order: columns, compression, encryption, checksum. So chain, header and payload checksums never need a key; only reading a
//! payload does.
//!
//! **Nonces.** A nonce is 9 random bytes, drawn by each sealer when it begins and again after every 2^24 batches, and a
//! counter of 3 bytes. A sealer is never stored, so a restart, a recovery that truncated a tail, and a repeated compaction all
//! begin with other random bytes: the same offset in two runs does not get the same nonce. With q draws
//! under one data key the chance that any two are equal is below q²/2^73: 2^-33 for 2^20 draws, which are 2^44 batches
//! or a million openings.
//!
//! Associated data are bytes 0–63 of the header and the key number: a payload moved to another partition, offset, epoch
//! or time, or put under another count, codec or flag, does not open.
mod entropy;
mod key_ring;
mod keys;
mod master;
mod sealer;

pub use entropy::{Entropy, EntropyError, SystemEntropy};
pub use key_ring::KeyRing;
pub use keys::{DataKey, KeyLack, SECRET_BYTES};
pub use master::{MasterKey, MasterKeyError, MasterKeys, WrappedKey};
pub use sealer::{SealError, Sealer};

/// What AES-GCM adds to a payload, bytes.
pub const TAG_BYTES: usize = 16;
/// Length of a nonce, bytes.
pub const NONCE_BYTES: usize = 12;
