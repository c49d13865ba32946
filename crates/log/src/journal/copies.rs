//! Copies of a journal's file among its files.
use super::replay::{Source, read_file};
use super::witness::Claim;
use crate::Error;

/// Sorts the files by sequence number. Where several hold one use, all but one are older copies of it under other names, as a
/// misdirected write or a restored backup leaves them: the one whose frames reach farthest stays, the others count as never
/// used. Read beside it, they would be a history that began again. What lay in their place is missed as if it were gone.
pub(super) fn set_aside(sources: &mut [Source]) -> Result<(), Error> {
    sources.sort_by_key(Source::sequence);
    let mut kept: Option<&mut Source> = None;
    for source in sources.iter_mut() {
        match &mut kept {
            Some(farthest) if farthest.is_use_of(source) => {
                if end(source)? > end(farthest)? {
                    farthest.forget_use();
                    kept = Some(source);
                } else {
                    source.forget_use();
                }
            }
            _ => kept = Some(source),
        }
    }
    sources.sort_by_key(Source::sequence);
    Ok(())
}

/// Where its whole frames end.
fn end(source: &Source) -> Result<u64, Error> {
    Ok(read_file(source, Claim::default())?.end)
}

impl Source {
    fn is_use_of(&self, other: &Self) -> bool {
        let both = self.preamble.zip(other.preamble);
        both.is_some_and(|(a, b)| (a.home, a.sequence, a.salt) == (b.home, b.sequence, b.salt))
    }

    fn forget_use(&mut self) {
        self.preamble = None;
        self.marks = None;
        self.beginning = None;
    }
}
