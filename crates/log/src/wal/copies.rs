//! Copies of a journal's file among its files.
use super::replay::{Source, read_file};
use super::witness::Claim;
use crate::Error;

/// Sorts the files by sequence number. Where several hold one use, all but one are older copies of it under other names, as a
/// misdirected write or a restored backup leaves them: the one that reaches farthest stays. Read beside it, the others would be
/// a history that began again; they count as files whose beginnings do not check, since they lie in the place of something.
/// One that is not sound may be the file itself, which has lost more than its copy.
pub(super) fn set_aside(sources: &mut [Source]) -> Result<(), Error> {
    sources.sort_by_key(Source::key);
    let mut kept: Option<&mut Source> = None;
    for source in sources.iter_mut() {
        match &mut kept {
            Some(farthest) if farthest.sequence() > 0 && farthest.key() == source.key() => {
                if source.reach()? > farthest.reach()? {
                    farthest.set_aside()?;
                    kept = Some(source);
                } else {
                    source.set_aside()?;
                }
            }
            _ => kept = Some(source),
        }
    }
    sources.sort_by_key(Source::sequence);
    Ok(())
}

impl Source {
    /// The same for copies of one use, of one version.
    fn key(&self) -> (u64, u32) {
        (self.sequence(), self.preamble.map_or(0, |of| of.link))
    }

    /// Where its frames end, by themselves and by its marks.
    fn reach(&self) -> Result<u64, Error> {
        let written = self
            .marks
            .as_ref()
            .map_or(0, |marks| marks.farthest.written);
        let end = read_file(self, Claim::default())?.end;
        Ok(end.max(written.into()))
    }

    /// Not sound, it is told as a loss, whatever others say is needed.
    fn set_aside(&mut self) -> Result<(), Error> {
        self.is_damaged = !read_file(self, Claim::default())?.damages.is_empty();
        self.disown();
        Ok(())
    }
}
