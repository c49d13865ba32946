//! Payload compression: LZ4 blocks and Zstandard frames, both with a bound given by the header.
//!
//! Compression contexts of Zstandard are kept per thread, since creating one costs more than a small batch.
use crate::planted_bug::{self, PlantedBug};
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

/// Level at which Zstandard compresses.
const ZSTD_LEVEL: i32 = 3;
/// A byte of an LZ4 block stands for less than this much output.
const LZ4_DENSEST: usize = 256;
/// Most output of one block of a Zstandard frame (RFC 8878 §3.1.1.2.4), and the fewest bytes that such a block takes.
const ZSTD_BLOCK_BYTES: usize = 128 << 10;
const ZSTD_BLOCK_LEAST: usize = 4;

thread_local! {
    static ZSTD_COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static ZSTD_DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// How a payload is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Stored as it is.
    #[default]
    None,
    /// LZ4 block.
    Lz4,
    /// Zstandard frame.
    Zstd,
}

impl Codec {
    /// The header byte: 0 none, 1 lz4, 2 zstd.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    /// The codec of a header byte; `None` when unknown.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// A new buffer of `prefix` zero bytes and the compressed `raw`; `None` when that is not smaller than `raw`
    /// (always so for [`Codec::None`]).
    pub(crate) fn compress(self, raw: &[u8], prefix: usize) -> Option<Vec<u8>> {
        let room = match self {
            Self::None => return None,
            Self::Lz4 => lz4_flex::block::get_maximum_output_size(raw.len()),
            Self::Zstd => raw.len(),
        };
        let mut out = vec![0; prefix + room];
        let stored = match self {
            Self::None => None,
            Self::Lz4 => lz4_flex::block::compress_into(raw, &mut out[prefix..]).ok(),
            Self::Zstd => compress_zstd(raw, &mut out[prefix..]),
        }?;
        if stored >= raw.len() {
            return None;
        }
        out.truncate(prefix + stored);
        Some(out)
    }

    /// The raw payload, exactly `raw_bytes` long; `None` when `stored` is damaged or would give any other length.
    ///
    /// `raw_bytes` is checked before anything is allocated: a length beyond what the densest input of the codec could become is
    /// refused, and so is a Zstandard frame that declares another length. Then exactly `raw_bytes` are reserved and never
    /// exceeded, however many frames follow each other in `stored`.
    pub(crate) fn decompress(self, stored: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
        if !self.can_become(stored.len(), raw_bytes) {
            return None;
        }
        let (raw, written) = match self {
            Self::None => (stored.to_vec(), stored.len()),
            Self::Lz4 => {
                let mut raw = vec![0; raw_bytes];
                let written = lz4_flex::block::decompress_into(stored, &mut raw).ok()?;
                (raw, written)
            }
            Self::Zstd if planted_bug::is_active(PlantedBug::DecompressionUnbounded) => {
                return zstd::decode_all(stored).ok();
            }
            Self::Zstd => {
                let declared = zstd::zstd_safe::get_frame_content_size(stored).ok()?;
                // None: the frame does not say. Further frames may follow, so less is possible.
                if declared.is_some_and(|declared| declared > raw_bytes as u64) {
                    return None;
                }
                let mut raw = Vec::with_capacity(raw_bytes);
                let written = decompress_zstd(stored, &mut raw)?;
                (raw, written)
            }
        };
        (written == raw_bytes && raw.len() == raw_bytes).then_some(raw)
    }

    /// Whether this number of stored bytes can decompress to that number of raw bytes.
    fn can_become(self, stored: usize, raw: usize) -> bool {
        match self {
            Self::None => stored == raw,
            Self::Lz4 => raw / LZ4_DENSEST <= stored,
            Self::Zstd => raw / ZSTD_BLOCK_BYTES <= stored / ZSTD_BLOCK_LEAST,
        }
    }
}

fn compress_zstd(raw: &[u8], out: &mut [u8]) -> Option<usize> {
    ZSTD_COMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = Compressor::new(ZSTD_LEVEL).ok();
        }
        slot.as_mut()?.compress_to_buffer(raw, out).ok()
    })
}

fn decompress_zstd(stored: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    ZSTD_DECOMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = Decompressor::new().ok();
        }
        slot.as_mut()?.decompress_to_buffer(stored, out).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_densest_input_of_each_codec_is_believed_and_more_is_not() {
        const LARGEST: usize = 16 << 20;
        let zeros = vec![0; LARGEST];
        for codec in [Codec::Lz4, Codec::Zstd] {
            let stored = codec.compress(&zeros, 0).unwrap();
            assert!(codec.can_become(stored.len(), LARGEST), "{codec:?}");
        }
        for (codec, least) in [
            (Codec::None, LARGEST),
            (Codec::Lz4, LARGEST / 256),
            (Codec::Zstd, LARGEST / (128 << 10) * 4),
        ] {
            assert!(codec.can_become(least, LARGEST), "{codec:?}");
            assert!(!codec.can_become(least - 1, LARGEST), "{codec:?}");
        }
    }
}
