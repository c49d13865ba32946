//! Payloads of commands out of paths and queries: as a client of the binary protocol would have sent them.
use super::problem::Problem;
use bascule_wire::iggy::Generation;
use bytes::{BufMut, BytesMut};
use http::StatusCode;
use percent_encoding::percent_decode_str;
use std::collections::HashMap;
use url::form_urlencoded;

const NUMBER: u8 = 1;
const NAME: u8 = 2;
/// A single consumer; over HTTP there is no other.
const CONSUMER: u8 = 1;
/// `InvalidIdentifier`.
const INVALID_IDENTIFIER: u32 = 6;

/// The generation whose layout of payloads and replies is used for a client of this one: v2 has batches, which JSON does not.
pub(super) fn layout(generation: Generation) -> Generation {
    match generation {
        Generation::V2 => Generation::Sdk9,
        other => other,
    }
}

/// The parts of a path, decoded.
///
/// # Errors
/// 400 for one that is not UTF-8.
pub(super) fn segments(path: &str) -> Result<Vec<String>, Problem> {
    let parts = path.trim_start_matches('/').split('/');
    let decoded = parts.map(|part| percent_decode_str(part).decode_utf8());
    let decoded: Result<Vec<_>, _> = decoded.map(|part| part.map(Into::into)).collect();
    decoded.map_err(|_| Problem::malformed("the path is not UTF-8"))
}

/// A payload being written.
pub(super) struct Payload {
    pub(super) out: BytesMut,
    pub(super) layout: Generation,
}

impl Payload {
    pub(super) fn new(generation: Generation) -> Self {
        Self {
            out: BytesMut::new(),
            layout: layout(generation),
        }
    }

    /// A stream, topic or group: all digits are a number, anything else is a name.
    ///
    /// # Errors
    /// Status 6 for a name that is not 1 to 255 bytes long, and for a number above 2^32 - 1.
    pub(super) fn identifier(&mut self, text: &str) -> Result<(), Problem> {
        let invalid = || {
            let shown: String = text.chars().take(40).collect();
            let reason = format!(
                "{shown:?} is not a valid identifier: give a number below 2^32, or a name of 1 to 255 bytes"
            );
            Problem::of_iggy(INVALID_IDENTIFIER, Some(reason))
        };
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let number: u32 = text.parse().map_err(|_| invalid())?;
            self.out.put_slice(&[NUMBER, 4]);
            self.out.put_u32_le(number);
            return Ok(());
        }
        match u8::try_from(text.len()) {
            Ok(length @ 1..) => {
                self.out.put_slice(&[NAME, length]);
                self.out.put_slice(text.as_bytes());
                Ok(())
            }
            _ => Err(invalid()),
        }
    }

    /// A single consumer.
    ///
    /// # Errors
    /// As [`Self::identifier`].
    pub(super) fn consumer(&mut self, text: &str) -> Result<(), Problem> {
        self.out.put_u8(CONSUMER);
        self.identifier(text)
    }

    /// A partition that may be left out.
    pub(super) fn partition(&mut self, number: Option<u32>) {
        if self.layout.has_partition_flag() {
            self.out.put_u8(u8::from(number.is_some()));
        }
        self.out.put_u32_le(number.unwrap_or_default());
    }
}

/// The consumer whom a request names, or the one that it means without.
pub(super) fn default_consumer(generation: Generation) -> String {
    generation.first_number().to_string()
}

/// The parameters of a request.
pub(super) struct Query(HashMap<String, String>);

impl Query {
    pub(super) fn read(query: &str) -> Self {
        Self(
            form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
        )
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The consumer, by the name that it has in later and in earlier clients.
    pub(super) fn consumer(&self, generation: Generation) -> String {
        let given = self.text("consumer_id").or_else(|| self.text("id"));
        given.map_or_else(|| default_consumer(generation), str::to_owned)
    }

    /// # Errors
    /// 400 for what is not a value of this kind.
    pub(super) fn value<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Problem> {
        let parsed = self.text(name).map(str::parse).transpose();
        parsed.map_err(|_| {
            let given: String = self
                .text(name)
                .unwrap_or_default()
                .chars()
                .take(40)
                .collect();
            let reason =
                format!("the parameter {name} is {given:?}, which is not one of its values");
            Problem::of_http(StatusCode::BAD_REQUEST, reason)
        })
    }
}
