//! `command key=value …`
use std::collections::HashMap;
use std::time::Duration;

/// What the command line said.
pub struct Arguments {
    /// First word.
    pub command: String,
    values: HashMap<String, String>,
}

impl Arguments {
    /// Reads the process's arguments; words without `=` after the first are ignored.
    pub fn from_command_line() -> Self {
        let mut words = std::env::args().skip(1);
        let command = words.next().unwrap_or_default();
        let values = words
            .filter_map(|word| word.split_once('=').map(|(k, v)| (k.into(), v.into())))
            .collect();
        Self { command, values }
    }

    /// A text, or its default.
    pub fn text<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.values.get(key).map_or(default, String::as_str)
    }

    /// A whole number, or its default (also when the text is none).
    pub fn number(&self, key: &str, default: u64) -> u64 {
        self.values
            .get(key)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    }

    /// `seconds` of load.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.number("seconds", 5))
    }

    /// `partitions` that take turns, at least 1.
    pub fn partitions(&self) -> u64 {
        self.number("partitions", 1).max(1)
    }

    /// A value of `bytes` bytes.
    pub fn value(&self) -> Vec<u8> {
        vec![b'x'; self.number("bytes", 256) as usize]
    }
}
