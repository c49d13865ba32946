//! The login: who the client is, in which protocol it speaks.
use super::header::{PATCHES, PROTOCOL};
use crate::iggy::reader::{Reader, text, whole};
use crate::iggy::{Generation, Malformed};

/// Operation 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register<'a> {
    /// Number of the client's protocol; what follows is read if it is spoken.
    pub protocol: u32,
    /// Name and version of the client's SDK.
    pub sdk: (&'a str, &'a str),
    /// Who logs in.
    pub credentials: Credentials<'a>,
}

/// Who logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials<'a> {
    /// A user with its password.
    Password {
        /// Name of the user.
        name: &'a str,
        /// Its password.
        password: &'a str,
    },
    /// A token that stands for a user.
    Token(&'a str),
}

impl<'a> Register<'a> {
    /// The number of the protocol, which every generation from 0.11 on writes first.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn protocol(body: &[u8]) -> Result<u32, Malformed> {
        Reader::new(body, Generation::V2).u32("the protocol")
    }

    /// Whether this protocol is spoken: 0.11 with any patch.
    pub fn is_spoken(protocol: u32) -> bool {
        protocol & !PATCHES == PROTOCOL
    }

    /// Reads a whole body. Nothing says whether a password or a token follows: it is what takes the body to its end, a
    /// password of at least one byte first. A context, which is passed over, may end it or be left out.
    ///
    /// # Errors
    /// [`Malformed`], of the form with a token.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        Self::read_with(body, |from| {
            let name = short(from, "the user's name")?;
            match short(from, "the password")? {
                "" => Err(Malformed::Unknown {
                    field: "the length of the password",
                    value: 0,
                }),
                password => Ok(Credentials::Password { name, password }),
            }
        })
        .or_else(|_| {
            Self::read_with(body, |from| {
                Ok(Credentials::Token(short(from, "the token")?))
            })
        })
    }

    fn read_with(
        body: &'a [u8],
        credentials: impl FnOnce(&mut Reader<'a>) -> Result<Credentials<'a>, Malformed>,
    ) -> Result<Self, Malformed> {
        whole(body, Generation::V2, |from| {
            let read = Self {
                protocol: from.u32("the protocol")?,
                sdk: (
                    short(from, "the SDK's name")?,
                    short(from, "the SDK's version")?,
                ),
                credentials: credentials(from)?,
            };
            if !from.rest().is_empty() {
                let bytes = from.u32("the context")?;
                text(from.take(bytes as usize, "the context")?, "the context")?;
            }
            Ok(read)
        })
    }
}

fn short<'a>(from: &mut Reader<'a>, field: &'static str) -> Result<&'a str, Malformed> {
    let bytes = from.u8(field)?;
    text(from.take(bytes.into(), field)?, field)
}
