//! `command key=value …`
use std::collections::HashMap;
use std::path::PathBuf;

/// What the command line said.
pub struct Arguments {
    /// First word.
    pub command: String,
    values: HashMap<String, String>,
}

impl Arguments {
    /// Reads the process's arguments.
    pub fn from_command_line() -> Self {
        let mut words = std::env::args().skip(1);
        let command = words.next().unwrap_or_default();
        let values = words
            .filter_map(|word| word.split_once('=').map(|(k, v)| (k.into(), v.into())))
            .collect();
        Self { command, values }
    }

    /// A path; empty when it was not given.
    pub fn path(&self, key: &str) -> PathBuf {
        self.values.get(key).map(PathBuf::from).unwrap_or_default()
    }

    /// A whole number, or its default when it was not given.
    ///
    /// # Errors
    /// When the text is not a number.
    pub fn number(&self, key: &str, default: u64) -> Result<u64, String> {
        self.values.get(key).map_or(Ok(default), |text| {
            text.parse()
                .map_err(|error| format!("{key}={text}: {error}"))
        })
    }
}
