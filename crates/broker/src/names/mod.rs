//! Rejects names with invisible characters, and names that look the same as another name.
//!
//! Names of streams, subjects and queue groups are read by people and typed by them: [`check_name`]. Ids of groups,
//! consumers and cursors are made and compared by programs: [`check_id`] refuses in them only what cannot have been
//! meant. What begins to exist is checked; what exists already keeps its name, so that it stays within reach.
//!
//! The table is `specs/vectors/names.txt`, examples are in `specs/vectors/names-in-context.txt`. The control plane asks
//! here too.
mod characters;
mod internal;

pub use characters::Flaw;
use characters::{flaw, flaw_in_id, flaw_in_name};
use icu_normalizer::ComposingNormalizerBorrowed;
pub use internal::{CURSORS, DEFAULT_NAMESPACE, is_internal};

/// Bytes of the longest name or id of any kind.
pub const MAX_BYTES: usize = 1024;
/// Characters of a name that an error shows.
const SHOWN: usize = 80;

/// A fault of a name: a sentence that begins with the name, shortened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Longer than any name may be; nothing else was checked.
    #[error(
        "{} is {bytes} bytes long, more than {MAX_BYTES}: give a shorter one",
        visible(beginning)
    )]
    TooLong {
        /// The beginning of the name.
        beginning: String,
        /// Bytes of the whole name.
        bytes: usize,
    },
    /// A character that the name may not have where it stands.
    #[error("{} has U+{:04X}, {flaw}: leave it out", visible(name), *.character as u32)]
    Character {
        /// The name.
        name: String,
        /// The first such character …
        character: char,
        /// … and why.
        flaw: Flaw,
    },
    /// Not in Unicode normal form C, so that another name looks the same.
    #[error("{} is not in Unicode normal form C: where it has U+{:04X}, give U+{:04X}, as in {}", visible(name), *.given as u32, *.normal as u32, visible(form))]
    NotNormal {
        /// The name.
        name: String,
        /// Its first character that is another one in normal form …
        given: char,
        /// … namely this.
        normal: char,
        /// The whole name in normal form.
        form: String,
    },
}

/// Checks that the name of a stream, a subject or a queue group shows what it is.
///
/// # Errors
/// [`NameError`].
pub fn check_name(name: &str) -> Result<(), NameError> {
    check_length(name)?;
    let characters: Vec<char> = name.chars().collect();
    refuse(name, flaw_in_name(&characters))?;
    let form = ComposingNormalizerBorrowed::new_nfc().normalize(name);
    let mut pairs = characters.iter().zip(form.chars().chain(Some(' ')));
    match pairs.find(|(given, normal)| *given != normal) {
        None => Ok(()),
        Some((given, normal)) => Err(NameError::NotNormal {
            name: name.to_owned(),
            given: *given,
            normal,
            form: form.into_owned(),
        }),
    }
}

/// Checks that the id of a group, a consumer or a cursor has no control, format or other character that nobody meant.
///
/// # Errors
/// [`NameError::TooLong`], [`NameError::Character`].
pub fn check_id(id: &str) -> Result<(), NameError> {
    check_length(id)?;
    refuse(id, flaw_in_id(id))
}

fn check_length(name: &str) -> Result<(), NameError> {
    if name.len() <= MAX_BYTES {
        return Ok(());
    }
    Err(NameError::TooLong {
        beginning: name.chars().take(SHOWN + 1).collect(),
        bytes: name.len(),
    })
}

fn refuse(name: &str, found: Option<(char, Flaw)>) -> Result<(), NameError> {
    match found {
        None => Ok(()),
        Some((character, flaw)) => Err(NameError::Character {
            name: name.to_owned(),
            character,
            flaw,
        }),
    }
}

/// The beginning of a name in quotes; forbidden characters are shown as code points.
fn visible(name: &str) -> String {
    let mut out = String::from('"');
    for character in name.chars().take(SHOWN) {
        match character {
            '"' | '\\' => out.extend(character.escape_default()),
            _ if flaw(character).is_some() => out.extend(character.escape_unicode()),
            _ => out.push(character),
        }
    }
    out.push_str(if name.chars().nth(SHOWN).is_some() {
        "…\""
    } else {
        "\""
    });
    out
}

#[cfg(test)]
mod tests;
