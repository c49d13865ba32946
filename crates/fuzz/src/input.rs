//! Structure out of bytes: what an input stands for where plain bytes would be refused at the first test.

/// Reads small values off the front; past the end everything is zero.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Up to `length` bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// A byte of length, then so many bytes.
    pub(crate) fn short(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte());
        self.bytes(length)
    }

    /// Two bytes of length, then so many bytes.
    pub(crate) fn long(&mut self) -> &'a [u8] {
        let length = usize::from(self.u16());
        self.bytes(length)
    }

    /// What is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let taken = self.bytes(N);
        for (to, from) in out.iter_mut().zip(taken) {
            *to = *from;
        }
        out
    }
}
