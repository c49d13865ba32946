//! The login by name: what the connection itself needs of it. The password is checked where users are decided.
use crate::iggy::reader::{Reader, text};
use crate::iggy::{Generation, Malformed};

/// `LOGIN_USER`, 38.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Login<'a> {
    /// Name of the user, 0 to 255 bytes.
    pub name: &'a str,
    /// Version of the client's SDK; empty when the client states none.
    pub version: &'a str,
}
impl<'a> Login<'a> {
    /// Number of the command.
    pub const CODE: u32 = 38;

    /// Reads a whole payload, which every generation writes alike. Old clients end it after the password.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(payload, Generation::V1);
        let name = short(&mut from, "the user's name")?;
        short(&mut from, "the password")?;
        if from.rest().is_empty() {
            return Ok(Self { name, version: "" });
        }
        let version = long(&mut from, "the version")?;
        long(&mut from, "the context")?;
        from.finish().map(|()| Self { name, version })
    }
}

fn short<'a>(from: &mut Reader<'a>, field: &'static str) -> Result<&'a str, Malformed> {
    let bytes = from.u8(field)?;
    text(from.take(bytes.into(), field)?, field)
}

fn long<'a>(from: &mut Reader<'a>, field: &'static str) -> Result<&'a str, Malformed> {
    let bytes = from.u32(field)?;
    text(from.take(bytes as usize, field)?, field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_with_and_without_a_version_and_cut_anywhere() {
        let short = b"\x04iggy\x06secret";
        let named = |version| Login {
            name: "iggy",
            version,
        };
        assert_eq!(Login::read(short), Ok(named("")));
        let mut whole = short.to_vec();
        whole.extend_from_slice(b"\x07\0\0\x000.6.202\x02\0\0\0{}");
        assert_eq!(Login::read(&whole), Ok(named("0.6.202")));
        for length in (0..whole.len()).filter(|length| *length != short.len()) {
            let cut = whole.get(..length).unwrap_or_default();
            assert!(Login::read(cut).is_err(), "{length}");
        }
        whole.push(0);
        assert_eq!(Login::read(&whole), Err(Malformed::TooLong { bytes: 1 }));
    }
}
