//! The manifest of a data directory, `bascule.json`: the format and the owner of the directory.
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};

/// Format of the directory of a broker alone.
pub(super) const FORMAT: u64 = 1;
/// Format of the directory of a broker of a cluster; the newest one.
pub(super) const CLUSTER_FORMAT: u64 = 2;

/// What the file holds.
#[derive(Serialize, Deserialize)]
pub(super) struct Manifest {
    pub format: u64,
    pub cluster_id: String,
    pub broker_id: String,
    /// Format 2.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory_id: String,
}

/// Why a manifest cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ManifestFault {
    /// A newer version wrote it, in this format.
    Newer(u64),
    /// It is damaged.
    Unreadable(String),
}

impl Manifest {
    /// Reads the file's content, whatever else a newer format holds.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub fn read(bytes: &[u8]) -> Result<Self, ManifestFault> {
        let json = serde_json::from_slice::<serde_json::Value>(bytes);
        let format = json.ok().and_then(|json| json.get("format")?.as_u64());
        if let Some(newer) = format.filter(|format| *format > CLUSTER_FORMAT) {
            return Err(ManifestFault::Newer(newer));
        }
        let manifest: Self = serde_json::from_slice(bytes)
            .map_err(|error| ManifestFault::Unreadable(error.to_string()))?;
        match (manifest.format, manifest.directory_id.is_empty()) {
            (FORMAT, true) | (CLUSTER_FORMAT, false) => Ok(manifest),
            (format, _) => Err(ManifestFault::Unreadable(format!(
                "its directory_id does not fit format {format}"
            ))),
        }
    }
}

impl Display for ManifestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer(format) => write!(
                f,
                "it says format {format}, this version knows up to {CLUSTER_FORMAT}"
            ),
            Self::Unreadable(why) => write!(f, "it is not readable: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read_and_what_fits_neither_is_not() {
        let read = |rest: &str| {
            let text = format!(r#"{{"cluster_id": "c", "broker_id": "b", {rest}}}"#);
            Manifest::read(text.as_bytes()).map(|manifest| manifest.format)
        };
        assert_eq!(read(r#""format": 1"#), Ok(FORMAT));
        let of_cluster = r#""format": 2, "directory_id": "0a""#;
        assert_eq!(read(of_cluster), Ok(CLUSTER_FORMAT));
        assert_eq!(
            read(r#""format": 3, "news": 1"#),
            Err(ManifestFault::Newer(3))
        );
        for damaged in [
            r#""format": 1, "directory_id": "0a""#,
            r#""format": 2"#,
            r#""format": 0"#,
            r#""format": "x""#,
        ] {
            assert!(matches!(read(damaged), Err(ManifestFault::Unreadable(_))));
        }
    }
}
