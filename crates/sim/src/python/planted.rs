//! Selects a planted bug, and reads a decompression bomb that reveals one of them.
use bascule_record::{
    Batch, BatchBuilder, BatchLimits, Codec, HEADER_BYTES, RecordRef, SealedBatch, Stamp,
};
use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Activates planted bug `number`; 0 for none. Refused by a build without planted bugs.
#[pyfunction]
pub(crate) fn plant(number: u32) -> PyResult<()> {
    #[cfg(feature = "planted")]
    bascule_record::planted_bug::set(number);
    if cfg!(feature = "planted") || number == 0 {
        Ok(())
    } else {
        Err(PyValueError::new_err("built without planted bugs"))
    }
}

/// Reads a batch whose payload promises little and unfolds to `frames` times 1 MiB. Returns why it was refused, or an
/// empty text.
#[pyfunction]
pub(crate) fn read_bomb(frames: usize) -> PyResult<String> {
    let sealed = one_mebibyte().ok_or_else(|| PyValueError::new_err("the batch was not made"))?;
    let batch = sealed.stamp(&Stamp {
        incarnation: 1,
        partition: 0,
        leader_epoch: 1,
        base_offset: 0,
        chain: 0,
        not_before: 0,
    });
    let bomb = multiply(&batch, frames).ok_or_else(|| PyValueError::new_err("no such batch"))?;
    Ok(Batch::read(&bomb).map_or_else(|error| error.to_string(), |_| String::new()))
}

fn one_mebibyte() -> Option<SealedBatch> {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let value = vec![0; 1 << 20];
    let record = RecordRef {
        value: Some(&value),
        ..RecordRef::default()
    };
    builder.push(&record).ok()?;
    builder.seal(Codec::Zstd, None, None)
}

/// The batch with its Zstandard frame repeated, and valid checksums. Fields: `specs/formats/batch.md`.
fn multiply(batch: &Bytes, frames: usize) -> Option<Bytes> {
    let payload = batch.get(HEADER_BYTES..)?.repeat(frames);
    let mut out = batch.get(..HEADER_BYTES)?.to_vec();
    out.get_mut(80..84)?
        .copy_from_slice(&u32::try_from(payload.len()).ok()?.to_le_bytes());
    out.get_mut(104..108)?
        .copy_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
    let checksum = crc32c::crc32c(out.get(..124)?);
    out.get_mut(124..128)?
        .copy_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(&payload);
    Some(Bytes::from(out))
}
