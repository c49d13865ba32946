//! NATS subjects: validity, the subject of a partition, filters with wildcards.
//!
//! A subject is one or more tokens joined by `.`. In a filter the token `*` stands for any one token, and `>` as the last
//! token for one or more.
use std::borrow::Cow;

/// Longest subject that is published or subscribed on, bytes. Two of them (subject and reply) fit a nats-server's control
/// line of 4096 bytes; on a longer line the server drops the connection, and with it everything else that uses it.
pub const MAX_SUBJECT_BYTES: usize = 2000;

/// Whether a stream may be attached to `subject` (liftbridge §3.1): no space, tab, CR or LF, and no empty
/// token. Wildcards are not restricted.
pub fn is_stream_subject(subject: &str) -> bool {
    !subject
        .bytes()
        .any(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
        && subject.split('.').all(|token| !token.is_empty())
}

/// Whether a message may be published on `subject`: as for a stream, but no control character, no token that is a wildcard,
/// and at most [`MAX_SUBJECT_BYTES`].
pub fn is_publish_subject(subject: &str) -> bool {
    subject.len() <= MAX_SUBJECT_BYTES
        && is_stream_subject(subject)
        && !subject.bytes().any(|byte| byte.is_ascii_control())
        && subject.split('.').all(|token| token != "*" && token != ">")
}

/// Whether NATS accepts a subscription on `subject`: as for a stream, but no control character, `>` only at the end, and at
/// most [`MAX_SUBJECT_BYTES`].
pub fn is_subscribable(subject: &str) -> bool {
    let mut tokens = subject.split('.');
    tokens.next_back();
    subject.len() <= MAX_SUBJECT_BYTES
        && is_stream_subject(subject)
        && !subject.bytes().any(|byte| byte.is_ascii_control())
        && tokens.all(|token| token != ">")
}

/// Whether `subject` has a token that is a wildcard.
pub fn has_wildcard(subject: &str) -> bool {
    subject.split('.').any(|token| token == "*" || token == ">")
}

/// Subject that partition `partition` of a stream on `base` listens on (liftbridge §4.1): `base` itself for 0,
/// otherwise `base.partition`.
pub fn partition_subject(base: &str, partition: u32) -> Cow<'_, str> {
    if partition == 0 {
        Cow::Borrowed(base)
    } else {
        Cow::Owned(format!("{base}.{partition}"))
    }
}

/// Text that is not a valid subject filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid NATS subject to filter by")]
pub struct InvalidFilter(pub String);

/// Which subjects are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectFilter {
    pattern: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Everything,
    Exact,
    Wildcards,
}

impl SubjectFilter {
    /// A filter from its text: a subject that may have wildcards.
    ///
    /// # Errors
    /// [`InvalidFilter`] when NATS would not accept a subscription on it.
    pub fn parse(pattern: &str) -> Result<Self, InvalidFilter> {
        if !is_subscribable(pattern) {
            return Err(InvalidFilter(pattern.to_owned()));
        }
        let kind = match pattern {
            ">" => Kind::Everything,
            _ if has_wildcard(pattern) => Kind::Wildcards,
            _ => Kind::Exact,
        };
        Ok(Self {
            pattern: pattern.to_owned(),
            kind,
        })
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// Whether `subject`, which has no wildcards, is wanted.
    pub fn matches(&self, subject: &str) -> bool {
        match self.kind {
            Kind::Everything => true,
            Kind::Exact => subject == self.pattern,
            Kind::Wildcards => matches_tokens(&self.pattern, subject),
        }
    }
}

fn matches_tokens(pattern: &str, subject: &str) -> bool {
    let mut subject = subject.split('.');
    for wanted in pattern.split('.') {
        let Some(token) = subject.next() else {
            return false;
        };
        match wanted {
            ">" => return true,
            "*" => {}
            _ if wanted == token => {}
            _ => return false,
        }
    }
    subject.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_subjects_have_no_blanks_and_no_empty_tokens() {
        for good in ["a", "a.b", "a.*", "a.>", ">", "a.>.b", "größe", "a*b"] {
            assert!(is_stream_subject(good), "{good:?}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\r", "a\n"] {
            assert!(!is_stream_subject(bad), "{bad:?}");
        }
    }

    #[test]
    fn publish_subjects_have_no_wildcards() {
        for good in ["a", "a.b", "a*b", "x>"] {
            assert!(is_publish_subject(good), "{good:?}");
        }
        for bad in ["", "*", "a.*", "a.*.b", ">", "a.>", "a\0", "a. b"] {
            assert!(!is_publish_subject(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_subject_fits_the_control_line_of_nats() {
        let (longest, longer) = (
            "s".repeat(MAX_SUBJECT_BYTES),
            "s".repeat(MAX_SUBJECT_BYTES + 1),
        );
        assert!(is_publish_subject(&longest) && is_subscribable(&longest));
        assert!(!is_publish_subject(&longer) && !is_subscribable(&longer));
    }

    #[test]
    fn partitions_after_the_first_have_a_suffix() {
        assert_eq!(partition_subject("a.*", 0), "a.*");
        assert_eq!(partition_subject("a.*", 1), "a.*.1");
        assert_eq!(partition_subject("foo", 12), "foo.12");
        assert!(!is_subscribable(&partition_subject("a.>", 1)));
    }

    #[test]
    fn filters_match_token_by_token() {
        let cases = [
            ("foo", "foo", true),
            ("foo", "foo.bar", false),
            ("foo.*", "foo.bar", true),
            ("foo.*", "foo", false),
            ("foo.*", "foo.bar.baz", false),
            ("*.bar", "foo.bar", true),
            ("*.bar", "foo.baz", false),
            ("foo.>", "foo.bar.baz", true),
            ("foo.>", "foo", false),
            ("foo.>", "food.bar", false),
            ("*.*", "a.b", true),
            (">", "a", true),
            ("a*", "ab", false),
            ("a*", "a*", true),
        ];
        for (pattern, subject, expected) in cases {
            let filter = SubjectFilter::parse(pattern).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(filter.matches(subject), expected, "{pattern} on {subject}");
        }
    }

    #[test]
    fn a_subject_that_nats_refuses_is_not_a_filter() {
        for bad in ["", "a..b", "a.>.b", ">.a", "a b"] {
            assert_eq!(
                SubjectFilter::parse(bad),
                Err(InvalidFilter(bad.to_owned()))
            );
        }
    }
}
