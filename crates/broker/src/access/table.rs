//! Client × action × resource.
use super::Action;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};

/// Resources that a rule names: exactly, or by how they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Resources {
    exact: HashSet<Box<str>>,
    /// An empty one matches everything.
    prefixes: Vec<Box<str>>,
}

/// One action of one client: allowed where `allow` matches and `deny` does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Grant {
    allow: Resources,
    deny: Resources,
}

/// Grants by number of the action; absent = denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rights(Vec<Option<Grant>>);

/// The document of `Engine.publish_access` (`specs/formats/seam.md`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    clients: HashMap<Box<str>, HashMap<String, Grant>>,
    everyone: HashMap<String, Grant>,
}

/// Everything that is allowed. Immutable. A client has its own grants and those of every client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessTable {
    clients: HashMap<Box<str>, Rights>,
    everyone: Rights,
}

/// Why a document is not a valid table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("access table: {0}")]
pub struct TableError(String);

impl AccessTable {
    /// Reads a document.
    ///
    /// # Errors
    /// [`TableError`]: malformed, or an action that does not exist.
    pub fn read(json: &[u8]) -> Result<Self, TableError> {
        let document: Document =
            serde_json::from_slice(json).map_err(|error| TableError(error.to_string()))?;
        let clients = document.clients.into_iter();
        let clients = clients.map(|(name, grants)| Ok((name, Rights::of(grants)?)));
        Ok(Self {
            clients: clients.collect::<Result<_, TableError>>()?,
            everyone: Rights::of(document.everyone)?,
        })
    }

    /// Which rule keeps `identity` from doing `action` to `resource`, for people; that it is not allowed is known.
    pub fn denial(&self, identity: &str, action: Action, resource: &str) -> String {
        let own = self.clients.get(identity);
        let named = own.map(|rights| (identity, rights));
        for (client, rights) in named.into_iter().chain([("*", &self.everyone)]) {
            let denied = rights
                .grant(action)
                .and_then(|grant| grant.deny.found(resource));
            if let Some(pattern) = denied {
                return format!("deny {} on {pattern:?} for {client:?}", action.name());
            }
        }
        "no rule allows it".to_owned()
    }

    /// Whether `identity` may do `action` to `resource`.
    pub fn allows(&self, identity: &str, action: Action, resource: &str) -> bool {
        let mut grants = self.grants(identity, action).into_iter().flatten();
        grants.any(|grant| grant.allow.has(resource)) && !self.denies(identity, action, resource)
    }

    /// Whether a rule denies `action` on `resource` to `identity`.
    pub fn denies(&self, identity: &str, action: Action, resource: &str) -> bool {
        let mut grants = self.grants(identity, action).into_iter().flatten();
        grants.any(|grant| grant.deny.has(resource))
    }

    /// Of the client itself, and of every client.
    fn grants(&self, identity: &str, action: Action) -> [Option<&Grant>; 2] {
        let own = self.clients.get(identity);
        let own = own.and_then(|rights| rights.grant(action));
        [own, self.everyone.grant(action)]
    }
}

impl Rights {
    fn of(grants: HashMap<String, Grant>) -> Result<Self, TableError> {
        let mut rights = vec![None; Action::ALL.len()];
        for (name, grant) in grants {
            let action =
                Action::of(&name).ok_or_else(|| TableError(format!("no action {name:?}")))?;
            if let Some(place) = rights.get_mut(action as usize) {
                *place = Some(grant);
            }
        }
        Ok(Self(rights))
    }

    fn grant(&self, action: Action) -> Option<&Grant> {
        self.0.get(action as usize).and_then(Option::as_ref)
    }
}

impl Resources {
    /// The name or the pattern that a resource matches.
    fn found(&self, resource: &str) -> Option<String> {
        if self.exact.contains(resource) {
            return Some(resource.to_owned());
        }
        let mut prefixes = self.prefixes.iter();
        let prefix = prefixes.find(|prefix| resource.starts_with(&***prefix))?;
        Some(format!("{prefix}*"))
    }

    fn has(&self, resource: &str) -> bool {
        self.exact.contains(resource)
            || self
                .prefixes
                .iter()
                .any(|prefix| resource.starts_with(&**prefix))
    }
}
