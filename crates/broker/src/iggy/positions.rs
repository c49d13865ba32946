//! Where consumers stand: kept in `__cursors` by whoever leads the partition of it, under ids that no cursor can have.
use super::context::IggyContext;
use super::groups;
use super::refused::Refused;
use super::resolve::{self, Opened};
use crate::client_requests::{Answered, Question};
use crate::forward::Destination;
use crate::names::{CURSORS, DEFAULT_NAMESPACE};
use crate::resume::{RESUMES, resume};
use crate::user_caller::UserCaller;
use bascule_wire::iggy::Status;
use bascule_wire::iggy::v1::{Consumer, ConsumerKind};

/// Ids of cursors have no control characters.
const CONSUMER: &str = "\0iggy:consumer:";
/// Groups are distinguished by the entry that created them: numbers may be given again.
const GROUP: &str = "\0iggy:group:";

/// A consumer at one partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position<'a> {
    pub(super) opened: &'a Opened,
    pub(super) caller: UserCaller<'a>,
    pub(super) consumer: Consumer<'a>,
}

impl Position<'_> {
    /// Whether there is such a consumer.
    ///
    /// # Errors
    /// 5000, 5003.
    pub(super) fn check(&self) -> Result<(), Status> {
        self.id().map(drop)
    }

    /// The id that the position is kept under.
    ///
    /// # Errors
    /// 5000, 5003.
    fn id(&self) -> Result<String, Status> {
        Ok(match self.consumer.kind {
            ConsumerKind::One => format!("{CONSUMER}{}", self.consumer.number()),
            ConsumerKind::Group => {
                let group = groups::find(&self.opened.topic, self.consumer.id)?;
                format!("{GROUP}{}", group.created)
            }
        })
    }

    /// The stored offset.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) async fn find(self, context: &IggyContext) -> Result<Option<u64>, Refused> {
        match self
            .ask(context, Question::FindPosition(self.id()?))
            .await?
        {
            Answered::Position(offset) => Ok(offset),
            _ => Err(Status::Error.into()),
        }
    }

    /// Stores an offset; with `waits` it returns when that is committed, else when it counts.
    ///
    /// # Errors
    /// As [`Self::ask`]; 1 also when `limits.cursors` positions are stored.
    pub(super) async fn store(
        self,
        context: &IggyContext,
        offset: u64,
        waits: bool,
    ) -> Result<(), Refused> {
        let id = self.id()?;
        let question = Question::StorePosition { id, offset, waits };
        match self.ask(context, question).await? {
            Answered::Stored => Ok(()),
            _ => Err(Status::Error.into()),
        }
    }

    /// Deletes a stored offset; returns whether there was one, when that is committed.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) async fn delete(self, context: &IggyContext) -> Result<bool, Refused> {
        match self
            .ask(context, Question::DeletePosition(self.id()?))
            .await?
        {
            Answered::Deleted(was_there) => Ok(was_there),
            _ => Err(Status::Error.into()),
        }
    }

    /// Asks whoever leads the partition of `__cursors` that keeps the position.
    ///
    /// # Errors
    /// 5000, 5003; 5 when no offsets are stored; 1 when positions cannot be read or stored; those of [`resolve::ask`].
    async fn ask(self, context: &IggyContext, question: Question) -> Result<Answered, Refused> {
        let asked = self.opened.asked(self.caller, question);
        let owner = asked.owner().ok_or(Status::Error)?;
        for _ in 0..RESUMES {
            let found: Result<Destination, i32> = {
                let view = context.view.load();
                let stream = view.stream(DEFAULT_NAMESPACE, CURSORS);
                // A broker without `cursors.partitions` stores no offsets.
                let stream = stream.ok_or(Status::FeatureUnavailable)?;
                let number = owner.place(stream) as i32;
                let partition = stream.partition(number).ok_or(Status::Error)?;
                if partition.paused {
                    Err(number)
                } else {
                    Ok(resolve::find(context, stream, partition)?)
                }
            };
            match found {
                Ok(destination) => return resolve::ask(context, &destination, asked).await,
                Err(number) => {
                    let events = &context.listener.events;
                    resume(events, (DEFAULT_NAMESPACE, CURSORS), number, None).await?;
                }
            }
        }
        Err(Status::Error.into())
    }
}
