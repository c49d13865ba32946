//! Taking the frames of one log out of the journal: of a log that is cut while no broker runs, and that would else take
//! over at its next opening what was cut off.
use super::format::{self, FRAME_BYTES, PREAMBLE_BYTES, Preamble, Reached};
use super::pending::Part;
use super::replay::{self, JournalDamage, JournalPlace};
use super::witness::Claim;
use crate::io::disk;
use crate::io::storage::{OpenMode, Storage};
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
    for source in replay::sources(storage, directory, OpenMode::Read)? {
        let holds = |(of, part): &(Identity, Part)| *of == identity && !part.is_lost();
        if replay::read_file(&source, Claim::default())?
            .parts
            .iter()
            .any(holds)
        {
            paths.push(source.file.path.clone());
        }
    }
    Ok(paths)
}

/// Replaces the file by one of the same sequence number, and of the same length unless it was cut off, that holds the frames
/// of all other logs. Durable when it returns; a crash leaves the old or the new file. What is damaged in it is left out, and
/// then the new one does not tell any more what was acknowledged.
///
/// # Errors
/// [`Error::Io`]; [`Error::NewerFormat`].
pub(crate) fn take_out(
    storage: &dyn Storage,
    path: &Path,
    identity: Identity,
) -> Result<(), Error> {
    let source = replay::open(storage, path, OpenMode::Read)?;
    let read = replay::read_file(&source, Claim::default())?;
    let life = if read.damages.is_empty() {
        source.life()
    } else {
        0
    };
    // The next use names the end that it had.
    let (preamble, of) = format::preamble(&Preamble {
        version: format::VERSION_REWRITTEN,
        life,
        before: Reached::default(),
        ..source.preamble.unwrap_or_default()
    });
    let (mut bytes, mut link, seal) = (preamble.clone(), of.link, of.seal());
    for (of, part) in read.parts {
        if of == identity || part.is_lost() {
            continue;
        }
        let content = part.content()?;
        let at = bytes.len();
        bytes.resize(at + FRAME_BYTES, 0);
        link = format::frame(
            bytes.get_mut(at..).unwrap_or_default(),
            &content,
            link,
            seal,
        );
        bytes.extend_from_slice(&content);
    }
    // One that was cut off stays so, and is told by the next start; as is one of which only its marks told that the end is lost,
    // or would have.
    let is_cut = |damage: &JournalDamage| {
        damage.place == JournalPlace::Cut
            || (damage.was_acked && damage.of.is_none_or(|(of, ..)| of != identity))
    };
    let is_cut = read.damages.iter().any(is_cut) || source.marks.is_some_and(|of| of.valid == 0);
    if !is_cut {
        // A file of version 1 may have no room for the copy.
        let len = (source.len as usize).saturating_sub(PREAMBLE_BYTES);
        bytes.resize(bytes.len().max(len), 0);
        bytes.extend_from_slice(&preamble);
    }
    disk::replace(storage, path, &bytes)
}
