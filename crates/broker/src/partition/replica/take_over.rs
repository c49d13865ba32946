//! The beginning of a leader: it takes what another member of its epoch has and it lacks, before its first record.
use super::links::position;
use super::messages::{Question, TakeOverMessage};
use super::received::Received;
use super::{Site, now};
use crate::clock::cautious_now_ns;
use bascule_replica::takeover::{Action, Actions, Event, TakeOver};
use bascule_replica::types::{BrokerId, Config};
use bytes::Bytes;

/// Bits of an incarnation behind the index of the entry that made it.
const ORDINAL_BITS: u32 = 16;

/// A take-over in one leader epoch.
#[derive(Debug)]
pub(super) struct TakingOver {
    machine: TakeOver,
    leader_epoch: u64,
}

impl TakingOver {
    /// Asks the other members. With nobody to ask, or if nobody has led before, it is over at once.
    pub fn begin(id: BrokerId, config: &Config, site: &mut Site<'_>) -> Self {
        let leader_epoch = config.leader_epoch;
        let mut config = config.clone();
        // The entry that made the partition named its leader: nobody has records.
        if site.log_id().incarnation >> ORDINAL_BITS == leader_epoch {
            config.eligible.retain(|member| *member == id);
        }
        let (machine, actions) = TakeOver::begin(id, &config, position(site.log), now());
        let taking_over = Self {
            machine,
            leader_epoch,
        };
        taking_over.perform(actions, &Received::default(), site);
        taking_over
    }

    /// Whether the epoch begins.
    pub fn is_over(&self) -> bool {
        self.machine.is_over()
    }

    /// Takes what came back.
    pub fn take(&mut self, message: TakeOverMessage, site: &mut Site<'_>) {
        let mut bytes = Bytes::new();
        let mut event = match message {
            TakeOverMessage::Position {
                from,
                leader_epoch,
                position,
            } => Event::Position {
                from,
                leader_epoch,
                position,
            },
            TakeOverMessage::Range {
                from,
                leader_epoch,
                attempt,
                batches,
            } if leader_epoch == self.leader_epoch => {
                bytes = batches;
                let batches = Vec::new();
                Event::Range {
                    from,
                    attempt,
                    batches,
                }
            }
            TakeOverMessage::Range { .. } | TakeOverMessage::Tick => Event::Tick,
        };
        let received = Received::new(bytes);
        if let Event::Range { batches, .. } = &mut event {
            batches.clone_from(&received.batches);
        }
        let actions = self.machine.step(event, now());
        self.perform(actions, &received, site);
    }

    fn perform(&self, actions: Actions, received: &Received, site: &mut Site<'_>) {
        let Some(to) = site.partition.to_brokers().cloned() else {
            return;
        };
        let identity = site.partition.identity();
        let question = Question {
            incarnation: identity.incarnation,
            partition: identity.number,
            leader_epoch: self.leader_epoch,
        };
        for action in actions {
            match action {
                Action::Ask(member) => to.ask_position(member, question, site.partition),
                Action::Fetch {
                    from,
                    attempt,
                    position,
                } => to.ask_range(from, question, attempt, position.end, site.partition),
                Action::Append { batches } => {
                    let bytes = received.first(batches);
                    // What the log does not take stays where it is; the epoch begins at the log's own end.
                    if let Err(error) = site.log.append_verbatim(bytes, cautious_now_ns())
                        && !error.is_transient()
                    {
                        site.partition.fail(&error.to_string());
                    }
                }
                Action::Open { .. } => {}
            }
        }
    }
}
