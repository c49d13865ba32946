//! A user who gives a command, and whether he may.
use crate::access::{Access, Action, stream_resource};
use crate::tls::Peer;
use crate::user_rights::{UserAction, UserRights};
use crate::view::StreamView;

/// The user of a session at one command. Rights allow; a rule of the policy that denies the principal overrides them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserCaller<'a> {
    /// Id of the user.
    pub(crate) user: u64,
    pub(crate) rights: &'a UserRights,
    pub(crate) access: &'a Access,
    pub(crate) peer: &'a Peer,
}

impl UserCaller<'_> {
    /// Whether the rights allow it in the namespace of this number; `None` = one that does not exist.
    pub(crate) fn may(&self, action: UserAction, stream: Option<u64>) -> bool {
        self.rights.allow(action, stream, None)
    }

    /// Whether the caller may do it with a topic, in the namespace of this number.
    pub(crate) fn may_with(
        &self,
        action: UserAction,
        stream: Option<u64>,
        topic: &StreamView,
    ) -> bool {
        self.rights.allow(action, stream, Some(topic.id)) && !self.is_denied(action, topic)
    }

    fn is_denied(&self, action: UserAction, topic: &StreamView) -> bool {
        let in_policy = match action {
            UserAction::Poll => Action::Subscribe,
            UserAction::Send => Action::Publish,
            UserAction::ReadTopic => Action::FetchPartitionMetadata,
            UserAction::ReadServers => Action::FetchMetadata,
        };
        let resource = stream_resource(&topic.namespace, &topic.name);
        let principal = &self.rights.principal;
        self.access
            .denies(self.peer, principal, in_policy, &resource)
    }
}
