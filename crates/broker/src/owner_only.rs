//! Creates files and directories that only the broker's own user may use: modes 0600 and 0700.
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const FILE: u32 = 0o600;
const DIRECTORY: u32 = 0o700;
/// Permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Creates a file for writing, or truncates an existing one.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    options().write(true).truncate(true).open(path)
}

/// Options that create the file if it does not exist.
pub(crate) fn options() -> OpenOptions {
    let mut options = File::options();
    options.create(true).mode(FILE);
    options
}

/// Creates one directory.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY).create(path)
}

/// Creates a directory and its missing parents.
pub(crate) fn create_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY)
        .create(path)
}

/// Removes the permissions of group and others from a directory. Returns the former mode if there were any.
///
/// # Errors
/// Errors of the operating system: only the owner of the directory may change its mode.
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
