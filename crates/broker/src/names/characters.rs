//! Characters that names may not have, or only where they are of use.
use icu_properties::props::{
    CanonicalCombiningClass, Emoji, EmojiComponent, EmojiModifier, ExtendedPictographic,
    GeneralCategory, GeneralCategoryGroup, JoiningType,
};
use icu_properties::{CodePointMapData, CodePointSetData};
use std::fmt;

/// Why a character is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A control character.
    Control,
    /// A blank that looks like a space and is none.
    Blank,
    /// A format character: it is never seen.
    Invisible,
    /// A letter or mark that leaves no mark of its own.
    Unmarked,
    /// U+200C or U+200D where it joins or parts nothing.
    Joiner,
    /// U+FE0F where it makes no emoji.
    Style,
    /// Private use.
    Private,
    /// No character.
    Nothing,
}

/// First and last character, inclusive; ascending.
pub(super) const REFUSED: &[(char, char, Flaw)] = &[
    ('\u{0000}', '\u{001F}', Flaw::Control),
    ('\u{007F}', '\u{009F}', Flaw::Control),
    ('\u{00A0}', '\u{00A0}', Flaw::Blank),
    ('\u{00AD}', '\u{00AD}', Flaw::Invisible),
    ('\u{034F}', '\u{034F}', Flaw::Unmarked),
    ('\u{061C}', '\u{061C}', Flaw::Invisible),
    ('\u{115F}', '\u{1160}', Flaw::Unmarked),
    ('\u{1680}', '\u{1680}', Flaw::Blank),
    ('\u{17B4}', '\u{17B5}', Flaw::Unmarked),
    ('\u{180B}', '\u{180D}', Flaw::Unmarked),
    ('\u{180E}', '\u{180E}', Flaw::Invisible),
    ('\u{180F}', '\u{180F}', Flaw::Unmarked),
    ('\u{2000}', '\u{200A}', Flaw::Blank),
    ('\u{200B}', '\u{200B}', Flaw::Invisible),
    ('\u{200C}', '\u{200D}', Flaw::Joiner),
    ('\u{200E}', '\u{200F}', Flaw::Invisible),
    ('\u{2028}', '\u{202E}', Flaw::Invisible),
    ('\u{202F}', '\u{202F}', Flaw::Blank),
    ('\u{205F}', '\u{205F}', Flaw::Blank),
    ('\u{2060}', '\u{206F}', Flaw::Invisible),
    ('\u{2800}', '\u{2800}', Flaw::Blank),
    ('\u{3000}', '\u{3000}', Flaw::Blank),
    ('\u{3164}', '\u{3164}', Flaw::Unmarked),
    ('\u{E000}', '\u{F8FF}', Flaw::Private),
    ('\u{FDD0}', '\u{FDEF}', Flaw::Nothing),
    ('\u{FE00}', '\u{FE0E}', Flaw::Unmarked),
    ('\u{FE0F}', '\u{FE0F}', Flaw::Style),
    ('\u{FEFF}', '\u{FEFF}', Flaw::Invisible),
    ('\u{FFA0}', '\u{FFA0}', Flaw::Unmarked),
    ('\u{FFF0}', '\u{FFFB}', Flaw::Invisible),
    ('\u{FFFE}', '\u{FFFF}', Flaw::Nothing),
    ('\u{1BCA0}', '\u{1BCA3}', Flaw::Invisible),
    ('\u{1D173}', '\u{1D17A}', Flaw::Invisible),
    ('\u{1FFFE}', '\u{1FFFF}', Flaw::Nothing),
    ('\u{2FFFE}', '\u{2FFFF}', Flaw::Nothing),
    ('\u{3FFFE}', '\u{3FFFF}', Flaw::Nothing),
    ('\u{4FFFE}', '\u{4FFFF}', Flaw::Nothing),
    ('\u{5FFFE}', '\u{5FFFF}', Flaw::Nothing),
    ('\u{6FFFE}', '\u{6FFFF}', Flaw::Nothing),
    ('\u{7FFFE}', '\u{7FFFF}', Flaw::Nothing),
    ('\u{8FFFE}', '\u{8FFFF}', Flaw::Nothing),
    ('\u{9FFFE}', '\u{9FFFF}', Flaw::Nothing),
    ('\u{AFFFE}', '\u{AFFFF}', Flaw::Nothing),
    ('\u{BFFFE}', '\u{BFFFF}', Flaw::Nothing),
    ('\u{CFFFE}', '\u{CFFFF}', Flaw::Nothing),
    ('\u{DFFFE}', '\u{DFFFF}', Flaw::Nothing),
    ('\u{E0000}', '\u{E00FF}', Flaw::Invisible),
    ('\u{E0100}', '\u{E01EF}', Flaw::Unmarked),
    ('\u{E01F0}', '\u{E0FFF}', Flaw::Invisible),
    ('\u{EFFFE}', '\u{EFFFF}', Flaw::Nothing),
    ('\u{F0000}', '\u{FFFFD}', Flaw::Private),
    ('\u{FFFFE}', '\u{FFFFF}', Flaw::Nothing),
    ('\u{100000}', '\u{10FFFD}', Flaw::Private),
    ('\u{10FFFE}', '\u{10FFFF}', Flaw::Nothing),
];

const PARTS: char = '\u{200C}';
const EMOJI_STYLE: char = '\u{FE0F}';
const KEYCAP: char = '\u{20E3}';

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "a control character",
            Self::Blank => "which looks like a space",
            Self::Invisible => "which cannot be seen",
            Self::Unmarked => "which leaves no mark of its own",
            Self::Joiner => "which joins or parts nothing there",
            Self::Style => "which makes no emoji there",
            Self::Private => "which means nothing to others",
            Self::Nothing => "which is not a character",
        })
    }
}

/// The entry of a character in the table.
pub(super) fn flaw(character: char) -> Option<Flaw> {
    let at = REFUSED.partition_point(|(_, last, _)| *last < character);
    let (first, _, flaw) = REFUSED.get(at)?;
    (*first <= character).then_some(*flaw)
}

/// The first character of a name that it may not have where it stands.
pub(super) fn flaw_in_name(name: &[char]) -> Option<(char, Flaw)> {
    name.iter().enumerate().find_map(|(at, &character)| {
        let flaw = flaw(character)?;
        let (before, after) = (name.get(..at)?, name.get(at + 1..)?);
        let of_use = match flaw {
            Flaw::Joiner => joins(before, character, after),
            Flaw::Style => makes_an_emoji(before, after),
            _ => false,
        };
        (!of_use).then_some((character, flaw))
    })
}

/// The first character of an id that no id has.
pub(super) fn flaw_in_id(id: &str) -> Option<(char, Flaw)> {
    let refused = [Flaw::Control, Flaw::Invisible, Flaw::Nothing];
    id.chars()
        .map(|character| (character, flaw(character)))
        .find_map(|(character, flaw)| {
            Some((character, flaw.filter(|flaw| refused.contains(flaw))?))
        })
}

/// Whether a joiner can be seen: beside a virama, between letters that would join, or (U+200D) between two emoji.
fn joins(before: &[char], joiner: char, after: &[char]) -> bool {
    let (Some(&last), Some(&next)) = (before.last(), after.first()) else {
        return false;
    };
    if joiner != PARTS && is_pictographic(next) {
        let base = before.iter().rfind(|mark| !is_emoji_mark(**mark));
        return base.is_some_and(|base| is_pictographic(*base));
    }
    if !is_word(last) || !is_word(next) {
        return false;
    }
    is_virama(last) || is_virama(next) || (joiner == PARTS && join(before, after))
}

/// Whether the letters on both sides, marks aside, are joined when nothing is between them.
fn join(before: &[char], after: &[char]) -> bool {
    let types = CodePointMapData::<JoiningType>::new();
    let of =
        |letter: &char| Some(types.get(*letter)).filter(|one| *one != JoiningType::Transparent);
    let last = before.iter().rev().find_map(of);
    let next = after.iter().find_map(of);
    matches!(
        last,
        Some(JoiningType::DualJoining | JoiningType::LeftJoining)
    ) && matches!(
        next,
        Some(JoiningType::DualJoining | JoiningType::RightJoining)
    )
}

/// Whether U+FE0F stands behind an emoji, or in a keycap.
fn makes_an_emoji(before: &[char], after: &[char]) -> bool {
    before.last().is_some_and(|last| match last {
        '0'..='9' | '#' | '*' => after.first() == Some(&KEYCAP),
        _ => {
            CodePointSetData::new::<Emoji>().contains(*last)
                && !CodePointSetData::new::<EmojiComponent>().contains(*last)
        }
    })
}

fn is_pictographic(character: char) -> bool {
    CodePointSetData::new::<ExtendedPictographic>().contains(character)
}

fn is_emoji_mark(character: char) -> bool {
    character == EMOJI_STYLE || CodePointSetData::new::<EmojiModifier>().contains(character)
}

fn is_word(character: char) -> bool {
    let category = CodePointMapData::<GeneralCategory>::new().get(character);
    let word = GeneralCategoryGroup::Letter.union(GeneralCategoryGroup::Mark);
    flaw(character).is_none() && word.contains(category)
}

fn is_virama(character: char) -> bool {
    let class = CodePointMapData::<CanonicalCombiningClass>::new().get(character);
    class == CanonicalCombiningClass::Virama
}
