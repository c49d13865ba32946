//! Authorization of clients, by a table that the control plane compiles from a policy and replaces as a whole.
//!
//! A client is the common name of its certificate. Without a table everything is allowed; with one, everything that
//! it does not allow is denied. A check costs two look-ups and no allocation. A long-running call keeps the result together
//! with its table ([`Authorization`]), and checks again when the table was replaced.
mod audit;
mod table;
#[cfg(test)]
mod tests;

pub use bascule_wire::methods::Action;
pub use table::{AccessTable, TableError};

use crate::events::Events;
use crate::names::DEFAULT_NAMESPACE;
use crate::statistics::Counter;
use crate::tls::Peer;
use arc_swap::ArcSwapOption;
use audit::Audit;
use std::borrow::Cow;
use std::sync::Arc;
use tonic::Status;

/// Start of the inboxes of NATS clients.
const INBOXES: &str = "_INBOX.";
/// Part of this cluster's ack inboxes after the namespace.
const ACKS: &str = ".ack.";
/// Characters of a resource that a refusal shows: its text has to fit into headers.
const SHOWN: usize = 1024;

/// Why a call is refused: the texts of liftbridge §9.3.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// There is a table, and the client has no name.
    #[error("api: Failed to retrieve client ID")]
    Nameless,
    /// The table does not allow it.
    #[error("The client is not authorized to call {} on resource {resource}", action.name())]
    NotAllowed {
        /// The denied action.
        action: Action,
        /// The resource, shortened.
        resource: String,
    },
}

/// The current table, and the number of its denials.
#[derive(Debug, Default)]
pub struct Access {
    table: ArcSwapOption<AccessTable>,
    denied: Counter,
    audit: Option<Audit>,
}

/// The rights that a long-running call needs until it ends, checked against `table`.
#[derive(Debug)]
pub(crate) struct Authorization {
    peer: Peer,
    needed: Box<[(Action, Box<str>)]>,
    /// The table that allowed them.
    table: Option<Arc<AccessTable>>,
}

impl Denied {
    /// The gRPC status of the call (deviation D5: `PERMISSION_DENIED` in place of UNKNOWN).
    pub fn status(&self) -> Status {
        match self {
            Self::Nameless => Status::unauthenticated(self.to_string()),
            Self::NotAllowed { .. } => Status::permission_denied(self.to_string()),
        }
    }
}

impl Access {
    /// Allows everything until a table is set; denials are reported to `events`.
    pub(crate) fn new(events: Arc<Events>) -> Self {
        Self {
            audit: Some(Audit::new(events)),
            ..Self::default()
        }
    }

    /// Number of denied calls, those of the control plane included.
    pub fn denied(&self) -> u64 {
        self.denied.get()
    }

    /// Counts a call that the control plane denied and logged.
    pub(crate) fn count_denied(&self) {
        self.denied.add(1);
    }

    /// Replaces the table; `None` = everything is allowed.
    pub fn set_table(&self, table: Option<AccessTable>) {
        self.table.store(table.map(Arc::new));
    }

    /// Checks that `peer` may do `action` to `resource`.
    ///
    /// # Errors
    /// [`Denied`].
    pub(crate) fn check(&self, peer: &Peer, action: Action, resource: &str) -> Result<(), Denied> {
        self.decide(self.table.load().as_deref(), peer, action, resource)
    }

    /// Checks that `peer` may have an ack sent to `inbox`: that is a message on a subject of its choice, which streams may store.
    /// Inboxes of NATS clients and of this cluster (`namespace`) need no right.
    ///
    /// # Errors
    /// [`Denied`].
    pub(crate) fn check_inbox(
        &self,
        peer: &Peer,
        namespace: &str,
        inbox: &str,
    ) -> Result<(), Denied> {
        let own = inbox.strip_prefix(namespace);
        if own.is_some_and(|rest| rest.starts_with(ACKS)) || inbox.starts_with(INBOXES) {
            return Ok(());
        }
        self.check(peer, Action::PublishToSubject, inbox)
    }

    /// Checks several rights of a long-running call; it calls [`Authorization::renew`] before each step.
    ///
    /// # Errors
    /// [`Denied`]: the first right that is missing.
    pub(crate) fn authorize(
        &self,
        peer: &Peer,
        needed: &[(Action, &str)],
    ) -> Result<Authorization, Denied> {
        let table = self.table.load_full();
        for &(action, resource) in needed {
            self.decide(table.as_deref(), peer, action, resource)?;
        }
        let owned = |&(action, resource): &(Action, &str)| (action, resource.into());
        Ok(Authorization {
            peer: peer.clone(),
            needed: needed.iter().map(owned).collect(),
            table,
        })
    }

    /// Whether a rule of the policy denies it to `principal`, whose rights are not in the policy. A denial is counted and logged.
    pub(crate) fn denies(
        &self,
        peer: &Peer,
        principal: &Arc<str>,
        action: Action,
        resource: &str,
    ) -> bool {
        let table = self.table.load();
        let Some(table) = table.as_deref() else {
            return false;
        };
        if !table.denies(principal, action, resource) {
            return false;
        }
        self.denied.add(1);
        if let Some(audit) = &self.audit {
            let peer = Peer {
                address: peer.address,
                identity: Some(principal.clone()),
            };
            let shown: String = resource.chars().take(SHOWN).collect();
            audit.note(&peer, action, &shown, || {
                table.denial(principal, action, resource)
            });
        }
        true
    }

    fn decide(
        &self,
        table: Option<&AccessTable>,
        peer: &Peer,
        action: Action,
        resource: &str,
    ) -> Result<(), Denied> {
        let Some(table) = table else { return Ok(()) };
        let identity = peer.identity.as_deref();
        if identity.is_some_and(|identity| table.allows(identity, action, resource)) {
            return Ok(());
        }
        self.denied.add(1);
        let shown: String = resource.chars().take(SHOWN).collect();
        if let Some(audit) = &self.audit {
            let rule = || {
                identity.map_or_else(
                    || "the client shows no name".to_owned(),
                    |identity| table.denial(identity, action, resource),
                )
            };
            audit.note(peer, action, &shown, rule);
        }
        Err(match identity {
            None => Denied::Nameless,
            Some(_) => Denied::NotAllowed {
                action,
                resource: shown,
            },
        })
    }

    /// The current table; [`same`] shows whether it was replaced since.
    pub(crate) fn current(&self) -> Option<Arc<AccessTable>> {
        self.table.load_full()
    }
}

impl Authorization {
    /// Checks the rights again if the table was replaced; otherwise compares two pointers.
    ///
    /// # Errors
    /// [`Denied`], when a newer table does not allow it.
    pub(crate) fn renew(&mut self, access: &Access) -> Result<(), Denied> {
        let table = access.table.load();
        if same(table.as_ref(), self.table.as_ref()) {
            return Ok(());
        }
        for (action, resource) in &*self.needed {
            access.decide(table.as_deref(), &self.peer, *action, resource)?;
        }
        self.table = arc_swap::Guard::into_inner(table);
        Ok(())
    }
}

/// Returns whether two tables are the same object.
pub(crate) fn same(one: Option<&Arc<AccessTable>>, other: Option<&Arc<AccessTable>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// The resource name of a stream: `name` in Liftbridge's namespace, `namespace/name` in others.
pub(crate) fn stream_resource<'a>(namespace: &str, stream: &'a str) -> Cow<'a, str> {
    if namespace == DEFAULT_NAMESPACE {
        Cow::Borrowed(stream)
    } else {
        Cow::Owned(format!("{namespace}/{stream}"))
    }
}
