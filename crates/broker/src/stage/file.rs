//! Reads a sealed piece file.
use super::format::{Contents, FOOTER_BYTES, FormatError, HEADER_BYTES, Header};
use super::piece::PieceId;
use bascule_record::{DamageError, HEADER_BYTES as BATCH_HEADER_BYTES, Header as BatchHeader};
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A sealed piece whose header and footer were read and checked. Holds no file open.
#[derive(Clone, Debug)]
pub struct PieceFile {
    path: PathBuf,
    header: Header,
    contents: Contents,
}

/// Why a piece cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PieceFault {
    /// There is no such piece.
    #[error("piece {name} of partition {incarnation} is missing")]
    Missing {
        /// Name of its file.
        name: String,
        /// The partition.
        incarnation: u64,
    },
    /// The operating system's.
    #[error("{} cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Its header or footer is not that of a piece.
    #[error("{} is damaged: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: FormatError,
    },
    /// The pieces that are here are not all that were decided.
    #[error(
        "{pieces} pieces of partition {incarnation} with {rows} rows are here, but {decided} rows were decided, or others"
    )]
    Incomplete {
        /// The partition.
        incarnation: u64,
        /// Pieces that are here.
        pieces: usize,
        /// Their rows.
        rows: u64,
        /// Rows that were decided.
        decided: u64,
    },
    /// A batch in it is not one.
    #[error("{} is damaged at byte {position}: {source}", path.display())]
    Batch {
        /// The file.
        path: PathBuf,
        /// Where the batch begins.
        position: u64,
        /// Why not.
        #[source]
        source: DamageError,
    },
    /// Parts of it contradict each other, or its name.
    #[error("{} is damaged: {what}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: &'static str,
    },
}

impl PieceFile {
    /// Opens the piece `id` in the stage folder `folder` of the partition `incarnation`. Waits for the disk.
    ///
    /// # Errors
    /// [`PieceFault`]: it is missing, cannot be read, or its header or footer is damaged.
    pub fn open(folder: &Path, incarnation: u64, id: &PieceId) -> Result<Self, PieceFault> {
        let path = folder.join(id.file_name());
        let file = File::open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => PieceFault::Missing {
                name: id.file_name(),
                incarnation,
            },
            _ => failed(&path, source),
        })?;
        let io = |source| failed(&path, source);
        let format = |source| PieceFault::Format {
            path: path.clone(),
            source,
        };
        let contradiction = |what| PieceFault::Contradiction {
            path: path.clone(),
            what,
        };
        let length = file.metadata().map_err(io)?.len();
        let (mut head, mut foot) = ([0; HEADER_BYTES], [0; FOOTER_BYTES]);
        let content = length.checked_sub((HEADER_BYTES + FOOTER_BYTES) as u64);
        let content = content.ok_or_else(|| contradiction("it is too short"))?;
        file.read_exact_at(&mut head, 0).map_err(io)?;
        file.read_exact_at(&mut foot, length - FOOTER_BYTES as u64)
            .map_err(io)?;
        let header = Header::read(&head).map_err(format)?;
        let contents = Contents::read(&foot).map_err(format)?;
        if header.id != *id || header.incarnation != incarnation {
            return Err(contradiction("its header is that of another piece"));
        }
        if contents.bytes != content {
            return Err(contradiction("its length is not that of its footer"));
        }
        Ok(Self {
            path,
            header,
            contents,
        })
    }

    /// Whose rows it holds.
    pub fn id(&self) -> &PieceId {
        &self.header.id
    }

    /// What its footer says.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Where it is, for sentences.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its batches in order, each as stored: header and payload, encrypted where the stream is. Each is stamped with the
    /// partition's incarnation and number, leader epoch 0, the row number within the piece as offset, and the link of the
    /// batch before it; none has a producer. Headers are checked here, payloads by [`bascule_record::Batch::open`]; after
    /// the last one, the checksum and the counts of the footer.
    ///
    /// # Errors
    /// [`PieceFault`] when it cannot be opened.
    pub fn batches(&self) -> Result<PieceBatches, PieceFault> {
        let file = File::open(&self.path).map_err(|source| failed(&self.path, source))?;
        Ok(PieceBatches {
            piece: self.clone(),
            file: Some(file),
            position: 0,
            found: Contents::default(),
            has_ended: false,
        })
    }
}

/// Iterates the batches of a piece; ends after the first failure. Waits for the disk.
#[derive(Debug)]
pub struct PieceBatches {
    piece: PieceFile,
    /// `None` = to be opened.
    file: Option<File>,
    /// Bytes of batches before the next one.
    position: u64,
    /// What was read.
    found: Contents,
    has_ended: bool,
}

impl Iterator for PieceBatches {
    type Item = Result<Bytes, PieceFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = if self.position < self.piece.contents.bytes {
            Some(self.read())
        } else {
            self.check_end().err().map(Err)
        };
        self.has_ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl PieceBatches {
    /// The piece.
    pub fn piece(&self) -> &PieceFile {
        &self.piece
    }

    /// Closes the file until the next batch is asked for.
    pub fn close_file(&mut self) {
        self.file = None;
    }

    fn read(&mut self) -> Result<Bytes, PieceFault> {
        let path = &self.piece.path;
        let io = |source| failed(path, source);
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(path).map_err(io)?,
        };
        let at = HEADER_BYTES as u64 + self.position;
        let damage = |source| PieceFault::Batch {
            path: path.clone(),
            position: at,
            source,
        };
        let left = self.piece.contents.bytes - self.position;
        let short = |need: usize| {
            damage(DamageError::Short {
                need,
                have: usize::try_from(left).unwrap_or(usize::MAX),
            })
        };
        if left < BATCH_HEADER_BYTES as u64 {
            return Err(short(BATCH_HEADER_BYTES));
        }
        let mut head = [0; BATCH_HEADER_BYTES];
        file.read_exact_at(&mut head, at).map_err(io)?;
        let header = BatchHeader::read(&head).map_err(damage)?;
        let length = header.batch_bytes();
        if length as u64 > left {
            return Err(short(length));
        }
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, at).map_err(io)?;
        self.file = Some(file);
        self.position += length as u64;
        self.found.batches = self.found.batches.saturating_add(1);
        self.found.rows += u64::from(header.count);
        self.found.bytes += length as u64;
        self.found.crc = crc32c::crc32c_append(self.found.crc, &bytes);
        Ok(Bytes::from(bytes))
    }

    fn check_end(&self) -> Result<(), PieceFault> {
        let found = Contents {
            digest: self.piece.contents.digest,
            ..self.found
        };
        if found == self.piece.contents {
            return Ok(());
        }
        Err(PieceFault::Contradiction {
            path: self.piece.path.clone(),
            what: "its batches are not those of its footer",
        })
    }
}

fn failed(path: &Path, source: io::Error) -> PieceFault {
    PieceFault::Io {
        path: path.to_owned(),
        source,
    }
}
