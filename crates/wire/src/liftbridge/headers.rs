//! Headers of a message: a map as Liftbridge has it, and our list, which keeps equal names and names that are not text.
//!
//! A message carries the map (`map<string, bytes>`), and the list (`repeated Header`) only where the map cannot show
//! everything. A list that is there is all of the headers, and the map is what older brokers and clients see of it.
use crate::protobuf::{self, Malformed, Value};
use bytes::Bytes;

/// Most headers of one message, inclusive; of the map those with names of their own. Names a byte or two long would
/// otherwise turn into many times their own size in memory.
pub const MAX_HEADERS: usize = 1024;

/// Pairs of name and value.
pub type HeaderPairs = Vec<(Bytes, Bytes)>;

/// Adds an entry of the map; repeated names are settled as soon as they are many, so that memory stays bounded.
pub(crate) fn push_map(
    headers: &mut HeaderPairs,
    message: &Bytes,
    value: Value,
) -> Result<(), Malformed> {
    let (name, content) = protobuf::header_entry(message, value)?;
    if headers.len() >= 2 * MAX_HEADERS {
        keep_last(headers);
        if headers.len() > MAX_HEADERS {
            return Err(Malformed);
        }
    }
    headers.push((
        protobuf::slice(message, name),
        protobuf::slice(message, content),
    ));
    Ok(())
}

/// Adds an entry of the list.
pub(crate) fn push_list(
    headers: &mut HeaderPairs,
    message: &Bytes,
    value: Value,
) -> Result<(), Malformed> {
    let (name, content) = protobuf::list_entry(message, value)?;
    if headers.len() >= MAX_HEADERS {
        return Err(Malformed);
    }
    headers.push((
        protobuf::slice(message, name),
        protobuf::slice(message, content),
    ));
    Ok(())
}

/// Leaves one entry of the map per name once all are there.
pub(crate) fn settle(headers: &mut HeaderPairs) -> Result<(), Malformed> {
    if repeats(&headers.iter().map(|(name, _)| &name[..])) {
        keep_last(headers);
    }
    if headers.len() > MAX_HEADERS {
        return Err(Malformed);
    }
    Ok(())
}

/// Leaves one entry per name, the last sent, at the place of the first. Linear, however many there are.
fn keep_last(headers: &mut HeaderPairs) {
    let mut seen = std::collections::HashMap::with_capacity(headers.len());
    let mut kept: HeaderPairs = Vec::with_capacity(headers.len());
    for (name, value) in headers.drain(..) {
        match seen.entry(name.clone()) {
            std::collections::hash_map::Entry::Occupied(entry) => {
                let place: &usize = entry.get();
                if let Some(slot) = kept.get_mut(*place) {
                    slot.1 = value;
                }
            }
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(kept.len());
                kept.push((name, value));
            }
        }
    }
    *headers = kept;
}

/// Whether a name comes twice. A few are compared pairwise.
pub(crate) fn repeats<'a>(names: &(impl Iterator<Item = &'a [u8]> + Clone)) -> bool {
    let mut seen = std::collections::HashSet::new();
    for (i, name) in names.clone().enumerate() {
        let again = if i < 16 {
            names.clone().take(i).any(|other| other == name)
        } else {
            if seen.is_empty() {
                seen.extend(names.clone().take(i));
            }
            !seen.insert(name)
        };
        if again {
            return true;
        }
    }
    false
}

/// Whether a map cannot show these headers: a name comes twice, or is not text.
pub(crate) fn needs_list(headers: &[(&[u8], &[u8])]) -> bool {
    headers
        .iter()
        .any(|(name, _)| std::str::from_utf8(name).is_err())
        || repeats(&headers.iter().map(|(name, _)| *name))
}

/// Bytes of a `Header` of a list whose field number takes two bytes.
pub(crate) fn list_field_bytes(name: &[u8], value: &[u8]) -> usize {
    1 + protobuf::header_field_bytes(name, value)
}

/// Appends a `Header` of a list.
pub(crate) fn put_list_field(out: &mut Vec<u8>, key: [u8; 2], name: &[u8], value: &[u8]) {
    out.extend_from_slice(&key);
    let body = protobuf::length_field_bytes(name.len()) + protobuf::length_field_bytes(value.len());
    protobuf::put_varint(out, body as u64);
    protobuf::put_length(out, 1, name.len());
    out.extend_from_slice(name);
    protobuf::put_length(out, 2, value.len());
    out.extend_from_slice(value);
}

/// Headers to be written: the map, and the list where the map cannot show everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written<'a> {
    headers: &'a [(&'a [u8], &'a [u8])],
    has_list: bool,
}

impl<'a> Written<'a> {
    pub(crate) fn new(headers: &'a [(&'a [u8], &'a [u8])]) -> Self {
        Self {
            headers,
            has_list: needs_list(headers),
        }
    }

    /// Entries of the map: names that are text. A reader lets the last of equal names count.
    fn map(&self) -> impl Iterator<Item = &'a (&'a [u8], &'a [u8])> {
        let has_list = self.has_list;
        self.headers
            .iter()
            .filter(move |(name, _)| !has_list || std::str::from_utf8(name).is_ok())
    }

    /// Bytes of both.
    pub(crate) fn bytes(&self) -> usize {
        let map: usize = self
            .map()
            .map(|(name, value)| protobuf::header_field_bytes(name, value))
            .sum();
        if !self.has_list {
            return map;
        }
        let list = self.headers.iter();
        map + list
            .map(|(name, value)| list_field_bytes(name, value))
            .sum::<usize>()
    }

    /// Appends the map.
    pub(crate) fn put_map(&self, out: &mut Vec<u8>, number: u8) {
        for (name, value) in self.map() {
            protobuf::put_header_field(out, number, name, value);
        }
    }

    /// Appends the list, if there is one.
    pub(crate) fn put_list(&self, out: &mut Vec<u8>, key: [u8; 2]) {
        if self.has_list {
            for (name, value) in self.headers {
                put_list_field(out, key, name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_repeated_headers_the_last_stays_in_the_first_place() {
        let pair =
            |name: &'static str, value: &'static str| (Bytes::from(name), Bytes::from(value));
        let mut headers = vec![pair("a", "1"), pair("b", "2"), pair("a", "3")];
        keep_last(&mut headers);
        assert_eq!(headers, vec![pair("a", "3"), pair("b", "2")]);
    }

    #[test]
    fn repeated_names_are_found_among_few_and_many() {
        for count in [2, 15, 16, 17, 18, 100] {
            let names: Vec<String> = (0..count).map(|i| i.to_string()).collect();
            assert!(!repeats(&names.iter().map(String::as_bytes)), "{count}");
            for first in [0, (count - 1) / 2, count - 2] {
                let mut again = names.clone();
                again[count - 1] = names[first].clone();
                assert!(repeats(&again.iter().map(String::as_bytes)), "{count}");
            }
        }
    }
}
