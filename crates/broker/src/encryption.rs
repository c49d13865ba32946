//! Master keys: where they come from, and what they make of a stream's data keys.
//!
//! Settings name files and environment variables, never a key: only this module reads them, and what it read is in
//! types that do not show it. A file that is configured and cannot be used ends the start; the environment variable is
//! Liftbridge's, and an error in it is reported when encryption is requested (liftbridge §3.14).
use bascule_record::crypt::{
    KeyRing, MasterKey, MasterKeyError, MasterKeys, SystemEntropy, WrappedKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Largest key file that is read, bytes.
const MAX_BYTES: u64 = 4096;

/// `encryption` in the engine's settings (`specs/formats/seam.md`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EncryptionSettings {
    /// Files by id of the master key: 16 or 32 bytes in base64, white space around them ignored.
    pub keys: BTreeMap<String, PathBuf>,
    /// Environment variables by id of the master key: 16 or 32 raw bytes.
    pub environment: BTreeMap<String, String>,
    /// Id of the key that wraps new data keys; empty = none.
    pub current: String,
}

/// A data key in a partition's spec.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataKeySpec {
    /// Its number, ≥ 1.
    pub number: u32,
    /// Id of the master key that wraps it.
    pub master: String,
    /// See [`WrappedKey::wrapped`]; base64.
    pub wrapped: String,
}

/// Why the configured keys cannot be used. Never contains bytes of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("master key {id:?} cannot be used: {reason}")]
pub struct MasterKeyFileError {
    /// Id of the master key.
    pub id: String,
    /// The fault.
    pub reason: String,
}

/// The master keys of this broker.
#[derive(Debug, Default)]
pub struct MasterKeyStore {
    keys: MasterKeys,
    /// Why there is none that wraps new data keys.
    lack: String,
}

impl MasterKeyStore {
    /// Reads files and variables.
    ///
    /// # Errors
    /// [`MasterKeyFileError`] for a file; not for a variable.
    pub fn load(settings: &EncryptionSettings) -> Result<Self, MasterKeyFileError> {
        let mut keys = Vec::new();
        for (id, path) in &settings.keys {
            let failed = |reason| MasterKeyFileError {
                id: id.clone(),
                reason,
            };
            let secret = read_file(path).map_err(failed)?;
            let key = MasterKey::new(id, &secret).map_err(|error| {
                failed(format!("{error} in {}: 16 or 32 are taken", path.display()))
            })?;
            keys.push(key);
        }
        let mut lack = format!(
            "master key {:?} is not configured: name a file with it under encryption.keys",
            settings.current
        );
        for (id, variable) in &settings.environment {
            let value = std::env::var_os(variable).map_or_else(Vec::new, OsStringExt::into_vec);
            match MasterKey::new(id, &Zeroizing::new(value)) {
                Ok(key) => keys.push(key),
                Err(error @ MasterKeyError::Size { .. }) if *id == settings.current => {
                    lack = format!(
                        "{error}: {variable} holds the key, 16 or 32 bytes; or name a file with one under encryption.keys"
                    );
                }
                Err(_) => {}
            }
        }
        let current = Some(settings.current.clone()).filter(|id| !id.is_empty());
        Ok(Self {
            keys: MasterKeys::new(keys, current),
            lack,
        })
    }

    /// A new data key of this number, ≥ 1, wrapped by the current master key: (id of the master key, base64).
    ///
    /// # Errors
    /// Reason why the key is missing, in one sentence.
    pub fn new_data_key(&self, number: u32) -> Result<(String, String), String> {
        let master = self.keys.current().ok_or_else(|| self.lack.clone())?;
        let wrapped = master.new_data_key(number, &SystemEntropy);
        let wrapped = wrapped.map_err(|error| error.to_string())?;
        Ok((wrapped.master, STANDARD.encode(wrapped.wrapped)))
    }

    /// The keys of a stream.
    pub fn ring(&self, keys: &[DataKeySpec]) -> KeyRing {
        let wrapped: Vec<_> = keys
            .iter()
            .map(|key| WrappedKey {
                id: key.number,
                master: key.master.clone(),
                // Invalid base64 does not unwrap either.
                wrapped: STANDARD.decode(&key.wrapped).unwrap_or_default(),
            })
            .collect();
        self.keys.unwrap(&wrapped)
    }
}

fn read_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    if std::fs::metadata(path).map_err(failed)?.len() > MAX_BYTES {
        return Err(format!("{} is too large for a key", path.display()));
    }
    let text = Zeroizing::new(std::fs::read(path).map_err(failed)?);
    let decoded = STANDARD.decode(text.trim_ascii());
    // The decoder's error quotes a byte of the key.
    decoded
        .map(Zeroizing::new)
        .map_err(|_| format!("{} does not hold base64", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(files: &[(&str, &Path)], current: &str) -> EncryptionSettings {
        EncryptionSettings {
            keys: files
                .iter()
                .map(|(id, path)| ((*id).to_owned(), path.to_path_buf()))
                .collect(),
            environment: BTreeMap::from([("env".into(), "BASCULE_TEST_NO_SUCH_KEY".into())]),
            current: current.into(),
        }
    }

    fn spec(number: u32, (master, wrapped): (String, String)) -> DataKeySpec {
        DataKeySpec {
            number,
            master,
            wrapped,
        }
    }

    #[test]
    fn data_keys_made_in_one_life_are_had_in_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        std::fs::write(&old, STANDARD.encode([1; 32]) + "\n").unwrap();
        std::fs::write(&new, STANDARD.encode([2; 16])).unwrap();
        let first = MasterKeyStore::load(&settings(&[("old", &old)], "old")).unwrap();
        let one = spec(1, first.new_data_key(1).unwrap());
        let both = MasterKeyStore::load(&settings(&[("old", &old), ("new", &new)], "new")).unwrap();
        let keys = [one, spec(2, both.new_data_key(2).unwrap())];
        assert_eq!([&keys[0].master, &keys[1].master], ["old", "new"]);
        let ring = both.ring(&keys);
        assert!(ring.get(1).is_ok() && ring.get(2).is_ok());
        let alone = MasterKeyStore::load(&settings(&[("new", &new)], "new")).unwrap();
        assert!(alone.ring(&keys).get(1).is_err() && alone.ring(&keys).get(2).is_ok());
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_without_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let cases: [(&[u8], &str); 3] = [
            (b"planted*secret", "does not hold base64"),
            (b"cGxhbnRlZA==", "invalid AES key size 7"),
            (&[b'A'; 5000], "too large"),
        ];
        for (content, reason) in cases {
            std::fs::write(&path, content).unwrap();
            let error = MasterKeyStore::load(&settings(&[("a", &path)], "a")).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains(reason) && text.contains("key"), "{text}");
            assert!(!text.contains("plant") && !text.contains("AAAA"), "{text}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(MasterKeyStore::load(&settings(&[("a", &path)], "a")).is_err());
    }

    #[test]
    fn without_a_usable_variable_a_request_for_a_key_returns_the_reason() {
        let master_keys = MasterKeyStore::load(&settings(&[], "env")).unwrap();
        let reason = master_keys.new_data_key(1).unwrap_err();
        assert!(reason.starts_with("invalid AES key size 0"), "{reason}");
        let master_keys = MasterKeyStore::load(&settings(&[], "other")).unwrap();
        let reason = master_keys.new_data_key(1).unwrap_err();
        assert_eq!(
            reason,
            "master key \"other\" is not configured: name a file with it under encryption.keys"
        );
    }
}
