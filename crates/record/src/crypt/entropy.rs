//! The source of random bytes: a trait, because a simulation needs its own.
use ring::rand::{SecureRandom, SystemRandom};

/// A source of unpredictable random bytes.
pub trait Entropy: Send + Sync + std::fmt::Debug {
    /// Fills `out`.
    ///
    /// # Errors
    /// [`EntropyError`] when there are none; `out` is then not to be used.
    fn fill(&self, out: &mut [u8]) -> Result<(), EntropyError>;
}

/// No random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no random bytes")]
pub struct EntropyError;

/// The operating system's generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, out: &mut [u8]) -> Result<(), EntropyError> {
        SystemRandom::new().fill(out).map_err(|_| EntropyError)
    }
}
