//! Names of the files in a data directory.
use std::path::{Path, PathBuf};

/// The name of a segment: `<base offset, 20 digits>.seg`.
pub(crate) fn segment_name(base_offset: u64) -> String {
    format!("{base_offset:020}.seg")
}

/// The base offset in a segment's name; `None` when it is not one.
pub(crate) fn base_offset_of(path: &Path) -> Option<u64> {
    numbered(path, ".seg")
}

/// The name of a WAL file: `<number, 20 digits>.journal`.
pub(crate) fn journal_name(number: u64) -> String {
    format!("{number:020}.journal")
}

/// The number in a WAL file's name; `None` when it is not one.
pub(crate) fn journal_number(path: &Path) -> Option<u64> {
    numbered(path, ".journal")
}

/// The number of 20 digits before `extension`.
fn numbered(path: &Path, extension: &str) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(extension)?;
    (name.len() == 20).then(|| name.parse().ok()).flatten()
}

/// The name under which a file or directory waits to be unlinked: `<name>.deleted-<time in ns>`.
pub(crate) fn deleted_name(path: &Path, now_ns: i64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".deleted-{}", now_ns.max(0)));
    PathBuf::from(name)
}

/// When the name was marked deleted, ns since 1970; `None` when it is not.
pub(crate) fn deleted_at(path: &Path) -> Option<i64> {
    let (_, time) = path.file_name()?.to_str()?.rsplit_once(".deleted-")?;
    time.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_names_carry_their_time() {
        let marked = deleted_name(Path::new("/a/00000000000000000001.seg"), 77);
        assert_eq!(deleted_at(&marked), Some(77));
        assert_eq!(deleted_at(Path::new("/a/00000000000000000001.seg")), None);
        assert_eq!(deleted_at(Path::new("/a/x.deleted-later")), None);
    }
}
