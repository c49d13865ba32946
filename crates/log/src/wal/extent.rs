//! How far each WAL file must reach, by the manifest and by its own end markers.
use super::end_marker::EndMarkers;
use super::format::WalPosition;
use super::manifest::{ManifestState, WalManifest};
use super::replay::{WalDamage, WalFault, WalFile};
use crate::Error;
use std::path::Path;

/// The extent that a file must have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpectedExtent {
    /// Frames before this position were acknowledged.
    pub acked_to: u64,
    /// Frames must reach this position.
    pub reached: u64,
    /// Whether a round of it was synced.
    pub is_begun: bool,
    /// Whether `reached` is where its frames end.
    pub is_closed: bool,
}

impl ExpectedExtent {
    /// Includes what the file's end markers say.
    pub fn with(self, markers: &EndMarkers) -> Self {
        let farthest = markers.farthest;
        Self {
            acked_to: self.acked_to.max(farthest.synced.into()),
            reached: self.reached.max(farthest.written.into()),
            ..self
        }
    }
}

/// The manifest against the files.
pub(crate) struct ConsistencyCheck {
    /// Content of the manifest; `None` when it cannot be trusted: then every file is needed.
    state: Option<ManifestState>,
    is_manifest_valid: bool,
    /// Log numbers that must have a file and have none.
    missing: Vec<WalPosition>,
}

impl ConsistencyCheck {
    /// `files`: by log number.
    ///
    /// # Errors
    /// [`Error::Stray`] when a file or the manifest belongs to another data directory, or is a copy.
    pub fn new(manifest: &WalManifest, files: &[WalFile]) -> Result<Self, Error> {
        let used = || files.iter().filter_map(|file| Some((file, file.preamble?)));
        let newest_before = used().map(|(_, preamble)| preamble.before.number).max();
        let of_manifest = manifest
            .state
            .as_ref()
            .map(|of| (&*manifest.path, of.data_dir_id));
        let of_files = used().map(|(file, of)| (&*file.file.path, of.data_dir_id));
        check_data_dir(of_manifest.into_iter().chain(of_files))?;
        // A manifest that is older than a file is a stale copy.
        let is_current = |state: &&ManifestState| newest_before <= Some(state.newest.number);
        let state = manifest.state.as_ref().filter(is_current).cloned();
        for ((one, a), (other, b)) in used().zip(used().skip(1)) {
            if (a.number, a.link) == (b.number, b.link) {
                return Err(stray(&one.file.path, &other.file.path));
            }
        }
        let needed = state.iter().flat_map(ManifestState::needed);
        let is_missing = |of: &WalPosition| files.iter().all(|file| !file.is_of(of));
        Ok(Self {
            missing: needed.filter(is_missing).collect(),
            is_manifest_valid: !manifest.is_damaged && (state.is_some() || used().next().is_none()),
            state,
        })
    }

    /// Content of the manifest; `None` when it cannot be trusted.
    pub fn into_state(self) -> Option<ManifestState> {
        self.state
    }

    /// Returns whether the segments may lack batches of the file. If they lack none, its damage loses nothing.
    pub fn needs(&self, file: &WalFile) -> bool {
        match (&self.state, file.preamble) {
            (None, _) => true,
            (Some(_), None) => !self.missing.is_empty(),
            (Some(state), Some(preamble)) => {
                let named = state.needed().find(|of| of.number == preamble.number);
                state.needs(preamble.number) && named.is_none_or(|of| file.is_of(&of))
            }
        }
    }

    /// The extent that the manifest and the markers prove for a file.
    pub fn extent(&self, file: &WalFile) -> ExpectedExtent {
        let (Some(state), Some(preamble)) = (&self.state, file.preamble) else {
            let is_missing = !self.missing.is_empty();
            return ExpectedExtent {
                acked_to: if is_missing { u64::MAX } else { 0 },
                ..ExpectedExtent::default()
            };
        };
        let named = state.needed().find(|of| file.is_of(of));
        let reached = named.map_or(0, |of| of.end.into());
        ExpectedExtent {
            acked_to: reached,
            reached,
            is_begun: preamble.number <= state.newest.number,
            is_closed: state.closed(preamble.number).is_some() && reached > 0,
        }
    }

    /// Damage other than that in the files themselves: of the manifest at `manifest`, and missing files of the WAL in `directory`.
    pub fn damages(&self, manifest: &Path, directory: &Path, files: &[WalFile]) -> Vec<WalDamage> {
        let damage = |path: &Path, fault| WalDamage {
            path: path.to_path_buf(),
            position: 0,
            fault,
            of: None,
            was_acked: fault == WalFault::Lost,
        };
        let is_unreadable = |file: &&WalFile| file.preamble.is_none() && file.is_damaged;
        let unreadable = files.iter().filter(is_unreadable).count();
        let mut damages = Vec::new();
        if !self.is_manifest_valid {
            damages.push(damage(manifest, WalFault::Manifest));
        }
        // A file whose preamble is lost is reported as such.
        if self.missing.len() > unreadable {
            let lost = damage(directory, WalFault::Lost);
            damages.extend(std::iter::repeat_n(lost, self.missing.len()));
        }
        damages
    }
}

/// Refuses files of different data directories; 0: the number is not known.
fn check_data_dir<'a>(files: impl Iterator<Item = (&'a Path, u64)>) -> Result<(), Error> {
    let mut known = files.filter(|(_, id)| *id > 0);
    let Some((first, id)) = known.next() else {
        return Ok(());
    };
    let other = known.find(|(_, other)| *other != id);
    other.map_or(Ok(()), |(path, _)| Err(stray(path, first)))
}

fn stray(path: &Path, beside: &Path) -> Error {
    Error::Stray {
        path: path.to_path_buf(),
        beside: beside.to_path_buf(),
    }
}
