//! Numbers of 128 bits as documents write them: 32 hexadecimal digits, the most significant first.
use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Digits of one.
const DIGITS: usize = 32;

/// Not 32 hexadecimal digits in lower case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not 32 hexadecimal digits (0 to 9, a to f)")]
pub struct NotHexadecimal(String);

macro_rules! hexadecimal {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u128);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = NotHexadecimal;

            fn from_str(text: &str) -> Result<Self, NotHexadecimal> {
                parse(text).map(Self).ok_or_else(|| {
                    NotHexadecimal(text.chars().take(2 * DIGITS).collect())
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }
    };
}

hexadecimal! {
    /// What one attempt to write an epoch is called, shared by all its tasks.
    Token
}

hexadecimal! {
    /// The sum of the hashes of rows, modulo 2^128 ([`bascule_wire::flight::digest::RowDigest`]).
    Digest
}

fn parse(text: &str) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != DIGITS || !text.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_with_all_its_zeros_and_read_back() {
        for number in [0, 1, u128::MAX, 0x00ff << 100] {
            let text = Token(number).to_string();
            assert_eq!(text.len(), 32);
            assert_eq!(text.parse(), Ok(Token(number)));
        }
    }

    #[test]
    fn anything_but_32_digits_in_lower_case_is_refused_by_its_value() {
        let long = "0".repeat(33);
        for text in [
            "",
            "00",
            "0123456789ABCDEF0123456789ABCDEF",
            "+123456789abcdef0123456789abcdef",
            &long,
        ] {
            let error = text.parse::<Digest>().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
