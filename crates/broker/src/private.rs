//! Files and directories of the data directory that only the broker's own user may use: 0600 and 0700.
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const FILE: u32 = 0o600;
const DIRECTORY: u32 = 0o700;
/// What group and others may do.
const OTHERS: u32 = 0o077;

/// Opens a file for writing, emptied when it is there.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    options().write(true).truncate(true).open(path)
}

/// Options that make the file when it is not there.
pub(crate) fn options() -> OpenOptions {
    let mut options = File::options();
    options.create(true).mode(FILE);
    options
}

/// Makes one directory.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY).create(path)
}

/// Makes a directory and those above it that are missing.
pub(crate) fn create_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY)
        .create(path)
}

/// Takes the rights of group and others on a directory away. Returns the mode it had when it had any.
///
/// # Errors
/// The operating system's: whose the directory is not may not change it.
pub(crate) fn restrict(path: &Path) -> io::Result<Option<u32>> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(None);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS))?;
    Ok(Some(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_lose_their_rights_and_the_owner_keeps_theirs() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
        assert_eq!(restrict(&path).unwrap(), Some(0o750));
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert_eq!(restrict(&path).unwrap(), None);
        assert!(restrict(&home.path().join("absent")).is_err());
    }
}
