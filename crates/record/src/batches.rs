//! Splits bytes into batches.
use crate::{DamageError, Header};
use bytes::Bytes;

/// Splits consecutive batches, as a log reader returns them, without checking payloads.
/// Yields the exact bytes of each; an error once at the first header that is invalid or does not fit, then ends.
#[derive(Clone, Debug)]
pub struct Batches {
    rest: Bytes,
}
impl Batches {
    /// `bytes`: zero or more whole batches, back to back.
    pub fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }
}
impl Iterator for Batches {
    type Item = Result<Bytes, DamageError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let whole = Header::read(&self.rest).and_then(|header| {
            let (need, have) = (header.batch_bytes(), self.rest.len());
            if need <= have {
                Ok(need)
            } else {
                Err(DamageError::Short { need, have })
            }
        });
        Some(match whole {
            Ok(length) => Ok(self.rest.split_to(length)),
            Err(error) => {
                self.rest.clear();
                Err(error)
            }
        })
    }
}
