//! Taking the frames of one log out of the journal: of a log that is cut while no broker runs, and that would else take
//! over at its next opening what was cut off.
use super::format::{self, FRAME_BYTES};
use super::replay::{self, FrameAt, Source};
use crate::disk;
use crate::storage::Storage;
use crate::{Error, Identity};
use std::path::{Path, PathBuf};

/// The files of the journal in `directory` that hold frames of the log; none when there is no journal.
///
/// # Errors
/// [`Error::Io`]; [`Error::NewerFormat`].
pub(crate) fn files_with(
    storage: &dyn Storage,
    directory: &Path,
    identity: Identity,
) -> Result<Vec<PathBuf>, Error> {
    let mut paths = Vec::new();
    for source in replay::sources(storage, directory)? {
        if frames(&source, identity)?.iter().any(|(ours, _)| *ours) {
            paths.push(source.file.path.clone());
        }
    }
    Ok(paths)
}

/// Replaces the file by one of the same length and sequence number that holds the frames of all other logs. Durable when
/// it returns; a crash leaves the old or the new file.
///
/// # Errors
/// [`Error::Io`]; [`Error::NewerFormat`].
pub(crate) fn take_out(
    storage: &dyn Storage,
    path: &Path,
    identity: Identity,
) -> Result<(), Error> {
    let source = replay::open(storage, path)?;
    let (mut bytes, mut link) = format::preamble(source.sequence);
    for (ours, frame) in frames(&source, identity)? {
        if ours {
            continue;
        }
        let content = frame.content()?;
        let at = bytes.len();
        bytes.resize(at + FRAME_BYTES, 0);
        link = format::frame(bytes.get_mut(at..).unwrap_or_default(), &content, link);
        bytes.extend_from_slice(&content);
    }
    bytes.resize(bytes.len().max(source.len as usize), 0);
    disk::replace(storage, path, &bytes)
}

/// The frames of a file, and whether they are of the log.
fn frames(source: &Source, identity: Identity) -> Result<Vec<(bool, FrameAt)>, Error> {
    let mut found = Vec::new();
    replay::frames(source, |header, frame| {
        let ours =
            header.incarnation == identity.incarnation && header.partition == identity.partition;
        found.push((ours, frame));
    })
    .map_err(|error| Error::io("read", &source.file.path, error))?;
    Ok(found)
}
