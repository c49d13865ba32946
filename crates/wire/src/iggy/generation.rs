//! The layouts of commands that clients speak.
use std::fmt;

/// How commands lie in frames, and which number the first of anything has. Decided once for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generation {
    /// Servers 0.4: SDK up to 0.6.
    V1,
    /// v1b of servers 0.5: SDK 0.7.
    Sdk7,
    /// v1b of servers 0.6: SDK 0.8.
    Sdk8,
    /// v1b of servers 0.7 and 0.8: SDK 0.9 and 0.10.
    Sdk9,
    /// Servers 0.9: SDK 0.11. Recognised by the first bytes of a connection, not by a version.
    V2,
}
impl Generation {
    /// All of them, oldest first.
    pub const ALL: [Self; 5] = [Self::V1, Self::Sdk7, Self::Sdk8, Self::Sdk9, Self::V2];

    /// The generation of a client with heads of 8 bytes, from the version that it states at login; `None` = one that is not
    /// spoken.
    ///
    /// Clients before 0.6 state none: an empty text is v1. A text without two numbers is not spoken.
    pub fn of_version(version: &str) -> Option<Self> {
        if version.is_empty() {
            return Some(Self::V1);
        }
        let mut parts = version.split('.');
        let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
        match (number(), number()) {
            (Some(0), Some(0..=6)) => Some(Self::V1),
            (Some(0), Some(7)) => Some(Self::Sdk7),
            (Some(0), Some(8)) => Some(Self::Sdk8),
            (Some(0), Some(9 | 10)) => Some(Self::Sdk9),
            _ => None,
        }
    }

    /// The number of the first stream, topic, partition, group and user: 0 or 1.
    pub fn first_number(self) -> u32 {
        match self {
            Self::V1 | Self::Sdk7 => 1,
            Self::Sdk8 | Self::Sdk9 | Self::V2 => 0,
        }
    }

    /// What a client of this generation is shown for a number that counts from 1.
    pub fn show(self, number: u32) -> u32 {
        number.saturating_sub(1 - self.first_number())
    }

    /// The number from 1 that a client of this generation means; `None` = no number can be meant.
    pub fn meant(self, number: u32) -> Option<u32> {
        number.checked_add(1 - self.first_number())
    }

    /// Whether a partition that may be left out has a flag before it, instead of being 0.
    pub fn has_partition_flag(self) -> bool {
        matches!(self, Self::Sdk8 | Self::Sdk9 | Self::V2)
    }

    /// Bytes of a message's head in v1b; `None` = v1, where lengths stand before the parts, and v2, which has batches.
    pub fn message_head_bytes(self) -> Option<usize> {
        match self {
            Self::V1 | Self::V2 => None,
            Self::Sdk7 | Self::Sdk8 => Some(56),
            Self::Sdk9 => Some(64),
        }
    }

    /// Whether keys of headers have a kind; else they are texts.
    pub fn has_typed_keys(self) -> bool {
        matches!(self, Self::Sdk9 | Self::V2)
    }

    /// Most bytes that the payloads of a send have together.
    pub fn max_payload_bytes(self) -> usize {
        match self {
            Self::V1 | Self::Sdk7 => 10_000_000,
            Self::Sdk8 | Self::Sdk9 | Self::V2 => 64_000_000,
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::V1 => "v1",
            Self::Sdk7 => "v1b of SDK 0.7",
            Self::Sdk8 => "v1b of SDK 0.8",
            Self::Sdk9 => "v1b of SDK 0.9",
            Self::V2 => "v2",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_choose_the_generation() {
        let versions: [(Generation, &[&str]); 4] = [
            (
                Generation::V1,
                &["", "0.6.202", "0.6.102", "0.5.0", "0.0.1"],
            ),
            (Generation::Sdk7, &["0.7.0", "0.7.1-edge.2"]),
            (Generation::Sdk8, &["0.8.0"]),
            (Generation::Sdk9, &["0.9.0", "0.10.0", "0.10.1"]),
        ];
        for (generation, versions) in versions {
            for version in versions {
                assert_eq!(
                    Generation::of_version(version),
                    Some(generation),
                    "{version}"
                );
            }
        }
        for version in ["0.11.0", "0.12.0", "1.0.0", "0", "x", "0.x", "."] {
            assert_eq!(Generation::of_version(version), None, "{version}");
        }
    }

    #[test]
    fn numbers_are_shown_as_they_are_meant() {
        for generation in Generation::ALL {
            for number in [1, 2, u32::MAX] {
                assert_eq!(generation.meant(generation.show(number)), Some(number));
            }
        }
        assert_eq!(Generation::Sdk9.meant(u32::MAX), None);
        assert_eq!(Generation::Sdk7.show(1), 1);
    }
}
