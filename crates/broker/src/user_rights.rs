//! What users of Iggy's clients may do with records. The control plane compiles it from their rights; no rule is known here.
use std::collections::HashMap;
use std::sync::Arc;

/// What the data plane asks before it answers a command. The bits are those of `specs/formats/seam.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum UserAction {
    /// Poll messages, and use stored offsets.
    Poll = 1,
    /// Send messages.
    Send = 2,
    /// Read a topic, and use its consumer groups.
    ReadTopic = 4,
    /// Read what is known about the broker and its connections.
    ReadServers = 8,
}

/// A user who may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRights {
    /// `iggy:<name>`: the name in the policy.
    pub principal: Arc<str>,
    /// Mask of what is allowed everywhere.
    pub everywhere: u8,
    /// Masks by the id of the namespace.
    pub streams: HashMap<u64, u8>,
    /// Masks by the ids of namespace and stream.
    pub topics: HashMap<(u64, u64), u8>,
}

impl UserRights {
    /// Whether the user may do this in the namespace and the stream of these ids; `None` = none, or one that does not exist.
    pub(crate) fn allow(
        &self,
        action: UserAction,
        stream: Option<u64>,
        topic: Option<u64>,
    ) -> bool {
        let on_stream = stream.and_then(|stream| self.streams.get(&stream));
        let on_topic = stream.zip(topic).and_then(|place| self.topics.get(&place));
        let mask = self.everywhere | on_stream.unwrap_or(&0) | on_topic.unwrap_or(&0);
        mask & action as u8 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody() -> UserRights {
        UserRights {
            principal: "iggy:ada".into(),
            everywhere: 0,
            streams: HashMap::new(),
            topics: HashMap::new(),
        }
    }

    #[test]
    fn one_right_of_the_place_suffices_and_those_of_other_places_do_not() {
        let user = UserRights {
            streams: HashMap::from([(0, UserAction::Poll as u8)]),
            topics: HashMap::from([((1, 2), UserAction::Send as u8)]),
            ..nobody()
        };
        assert!(user.allow(UserAction::Poll, Some(0), Some(9)));
        assert!(!user.allow(UserAction::Send, Some(0), Some(2)));
        assert!(user.allow(UserAction::Send, Some(1), Some(2)));
        assert!(!user.allow(UserAction::Send, Some(1), None));
        assert!(!user.allow(UserAction::Poll, None, Some(9)));
        let root = UserRights {
            everywhere: 15,
            ..nobody()
        };
        assert!(root.allow(UserAction::ReadServers, None, None));
    }
}
