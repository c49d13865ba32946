//! Reads the fields of a payload in order; nothing is copied.
use super::Generation;
use thiserror::Error;

/// Why a payload is not the command it claims to be; the client gets status 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// The payload ends within a field.
    #[error("the payload ends within {field}")]
    Ended {
        /// Name of the field.
        field: &'static str,
    },
    /// Bytes after the last field.
    #[error("{bytes} bytes follow the last field")]
    TooLong {
        /// Bytes left.
        bytes: usize,
    },
    /// A kind, length or flag that has no meaning.
    #[error("{field} is {value}, which has no meaning")]
    Unknown {
        /// Name of the field.
        field: &'static str,
        /// What was read.
        value: u32,
    },
    /// A text that is not UTF-8.
    #[error("{field} is not UTF-8")]
    NotText {
        /// Name of the field.
        field: &'static str,
    },
}

/// What is left of a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    generation: Generation,
}
impl<'a> Reader<'a> {
    pub(crate) fn new(payload: &'a [u8], generation: Generation) -> Self {
        Self {
            rest: payload,
            generation,
        }
    }

    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(
        &mut self,
        bytes: usize,
        field: &'static str,
    ) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(Malformed::Ended { field })?;
        self.rest = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(Malformed::Ended { field })?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        self.fixed(field).map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        self.fixed(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        self.fixed(field).map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self, field: &'static str) -> Result<u128, Malformed> {
        self.fixed(field).map(u128::from_le_bytes)
    }

    /// One byte, 0 or 1.
    pub(crate) fn flag(&mut self, field: &'static str) -> Result<bool, Malformed> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Malformed::Unknown {
                field,
                value: value.into(),
            }),
        }
    }

    /// The end of the payload.
    pub(crate) fn finish(self) -> Result<(), Malformed> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(Malformed::TooLong { bytes }),
        }
    }
}

/// What `fields` reads of a payload, which ends there.
pub(crate) fn whole<'a, T>(
    payload: &'a [u8],
    generation: Generation,
    fields: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    let mut from = Reader::new(payload, generation);
    let read = fields(&mut from)?;
    from.finish().map(|()| read)
}

/// UTF-8 text.
pub(crate) fn text<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed::NotText { field })
}
