//! Writes one piece: batches to a file with a temporary name, then the footer, a sync, and the piece's own name.
use super::error::StageError;
use super::format::{Contents, FOOTER_BYTES, HEADER_BYTES, Header};
use super::numbers::Digest;
use super::piece::PieceId;
use crate::owner_only;
use bascule_log::{LogReader, failpoint};
use bascule_record::crypt::{SealError, Sealer};
use bascule_record::{Header as BatchHeader, SealedBatch, Stamp};
use bytes::Bytes;
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How temporary names end.
pub(super) const TEMPORARY: &str = "tmp";

/// Where the pieces of one partition go.
#[derive(Debug)]
pub(super) struct Folder {
    pub path: PathBuf,
    pub incarnation: u64,
    pub number: u32,
    pub sealer: Arc<StageSealer>,
}

/// Encrypts the pieces of one partition: they share its nonces, for those of one draw are many more than the batches of a
/// piece.
#[derive(Debug, Default)]
pub(super) struct StageSealer(Mutex<Option<(u32, Sealer)>>);

impl StageSealer {
    /// The batch with its place in a piece, encrypted when the stream is.
    fn stamp(
        &self,
        reader: &LogReader,
        batch: SealedBatch,
        stamp: &Stamp,
    ) -> Result<Bytes, SealError> {
        let keys = reader.keys();
        let Some(key_id) = keys.current() else {
            return Ok(batch.stamp(stamp));
        };
        let mut sealer = self.0.lock();
        if sealer.as_ref().is_none_or(|(known, _)| *known != key_id) {
            *sealer = keys.sealer()?.map(|made| (key_id, made));
        }
        match &mut *sealer {
            Some((_, sealer)) => batch.stamp_encrypted(stamp, sealer),
            None => Err(SealError::Plain),
        }
    }
}

/// A piece being written. Holds no file open between writes, so that many may be written at once.
#[derive(Debug)]
pub(super) struct PieceWriter {
    folder: Folder,
    id: PieceId,
    temporary: PathBuf,
    contents: Contents,
    crc: u32,
    /// Link of the last batch.
    chain: u32,
}

impl PieceWriter {
    /// A piece of no batches, not yet on disk. `number` makes its temporary name differ from those of other calls.
    pub fn new(folder: Folder, id: PieceId, number: u64) -> Self {
        let name = format!("{}.{number}.{TEMPORARY}", id.file_name());
        Self {
            temporary: folder.path.join(name),
            folder,
            id,
            contents: Contents::default(),
            crc: 0,
            chain: 0,
        }
    }

    pub fn incarnation(&self) -> u64 {
        self.folder.incarnation
    }

    pub fn number(&self) -> u32 {
        self.folder.number
    }

    /// The file while it is being written.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// The file once it is sealed.
    pub fn path(&self) -> PathBuf {
        self.folder.path.join(self.id.file_name())
    }

    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// What the batches written so far hold, with the digest of their rows.
    pub fn contents(&self, digest: u128) -> Contents {
        Contents {
            digest: Digest(digest),
            crc: self.crc,
            ..self.contents
        }
    }

    /// Bytes of the whole file once it is sealed.
    pub fn file_bytes(&self) -> u64 {
        (HEADER_BYTES + FOOTER_BYTES) as u64 + self.contents.bytes
    }

    /// The batch as it is to be stored next. `reader`: of the partition's log, which has the keys.
    ///
    /// # Errors
    /// [`StageError::Encryption`].
    pub fn stamp(&self, reader: &LogReader, batch: SealedBatch) -> Result<Bytes, StageError> {
        let stamp = Stamp {
            incarnation: self.folder.incarnation,
            partition: self.folder.number,
            leader_epoch: 0,
            base_offset: self.contents.rows,
            chain: self.chain,
            not_before: i64::MIN,
        };
        let stamped = self.folder.sealer.stamp(reader, batch, &stamp);
        stamped.map_err(|error| StageError::Encryption {
            partition: self.folder.number,
            reason: error.to_string(),
        })
    }

    /// Writes a batch. After an error the piece is not to be sealed.
    ///
    /// # Errors
    /// [`StageError::Full`], [`StageError::Io`].
    pub fn append(&mut self, batch: &[u8]) -> Result<(), StageError> {
        let path = &self.temporary;
        let io = |source| StageError::io("written", path, source);
        failpoint::check("stage.append").map_err(io)?;
        let mut file = if self.contents.batches == 0 {
            create_folder(&self.folder.path)?;
            let mut file = owner_only::create(path).map_err(io)?;
            let header = Header {
                incarnation: self.folder.incarnation,
                partition: self.folder.number,
                id: self.id,
            };
            file.write_all(&header.write()).map_err(io)?;
            file
        } else {
            OpenOptions::new().append(true).open(path).map_err(io)?
        };
        file.write_all(batch).map_err(io)?;
        let header = BatchHeader::read(batch).map_err(|error| io(io::Error::other(error)))?;
        self.chain = header.link();
        self.contents.batches += 1;
        self.contents.rows += u64::from(header.count);
        self.contents.bytes += batch.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, batch);
        Ok(())
    }

    /// Writes the footer, syncs the file, gives it its name and syncs the folder.
    ///
    /// # Errors
    /// [`StageError::Full`], [`StageError::Io`]; the file may have its name.
    pub fn seal(&self, digest: u128) -> Result<(), StageError> {
        let path = &self.temporary;
        let io = |what| move |source| StageError::io(what, path, source);
        let mut file = OpenOptions::new()
            .append(true)
            .open(path)
            .map_err(io("written"))?;
        file.write_all(&self.contents(digest).write())
            .map_err(io("written"))?;
        failpoint::check("stage.written").map_err(io("synced"))?;
        file.sync_data().map_err(io("synced"))?;
        drop(file);
        fs::rename(path, self.path()).map_err(io("renamed"))?;
        failpoint::check("stage.renamed").map_err(io("synced"))?;
        sync_folder(&self.folder.path)?;
        // Whoever made the folder may not have come to this.
        self.folder.path.parent().map_or(Ok(()), sync_folder)
    }

    /// Removes the file under the name that it would have been sealed with. What is left after an error is not in the index,
    /// and no answer named it: the table makes it void.
    pub fn remove_sealed(&self) {
        let _ = fs::remove_file(self.path());
    }
}

/// Makes the stage folder of a partition, whose own folder is there.
fn create_folder(path: &Path) -> Result<(), StageError> {
    let io = |source| StageError::io("created", path, source);
    match owner_only::create_directory(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(io(error)),
    }
}

fn sync_folder(path: &Path) -> Result<(), StageError> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(|source| StageError::io("synced", path, source))
}
