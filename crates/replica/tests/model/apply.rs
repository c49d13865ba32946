//! The rules of `apply` that the model needs, and the steps of the controller.
use crate::state::{BROKERS, State};
use bascule_replica::types::{BrokerId, Config};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Rule 8: an ISR with min-in-sync members sets the eligible set.
fn follow_isr(config: &mut Config) {
    if config.isr.len() >= config.min_isr {
        config.eligible.clone_from(&config.isr);
    }
}

fn push(state: &mut State, config: Config) {
    // What names an older partition epoch is void for ever.
    let current = (config.leader_epoch, config.partition_epoch);
    state
        .proposals
        .retain(|proposal| (proposal.3, proposal.4) == current);
    state.entries.push(Arc::new(config));
}

/// A proposed ISR arrives. A refusal with current epochs sets the partition epoch.
pub fn change_isr(state: &mut State, isr: &[BrokerId], verified: &[(BrokerId, u64)]) {
    let index = state.next_index();
    let mut config = state.config().clone();
    config.partition_epoch = index;
    let runs = verified.iter().all(|(member, boot_epoch)| {
        config
            .replicas
            .get(member)
            .is_some_and(|replica| replica.confirmed && replica.boot_epoch == *boot_epoch)
    });
    let added = isr.iter().all(|member| {
        config.isr.contains(member) || verified.iter().any(|(known, _)| known == member)
    });
    if runs && added {
        config.isr = isr.iter().copied().collect();
        follow_isr(&mut config);
    }
    push(state, config);
}

/// The leader's run is fenced, and this broker is named.
pub fn elect(state: &mut State, broker: BrokerId) {
    let index = state.next_index();
    let mut config = state.config().clone();
    if let Some(old) = config.leader {
        config.isr.remove(&old);
        if let Some(replica) = config.replicas.get_mut(&old) {
            replica.confirmed = false;
        }
    }
    follow_isr(&mut config);
    if !config.isr.contains(&broker) {
        config.isr = BTreeSet::from([broker]);
        follow_isr(&mut config);
    }
    (config.leader, config.leader_epoch, config.partition_epoch) = (Some(broker), index, index);
    push(state, config);
}

/// The brokers that an election may name: step 3 of the choice, without the present leader.
pub fn candidates(config: &Config) -> impl Iterator<Item = BrokerId> + '_ {
    BROKERS
        .into_iter()
        .filter(|&broker| config.leader != Some(broker) && config.can_lead(broker))
}

/// A follower's run is fenced.
pub fn fence(state: &mut State, broker: BrokerId) {
    let index = state.next_index();
    let mut config = state.config().clone();
    config.isr.remove(&broker);
    if let Some(replica) = config.replicas.get_mut(&broker) {
        replica.confirmed = false;
    }
    follow_isr(&mut config);
    config.partition_epoch = index;
    push(state, config);
}

/// A fenced broker registers a new run, after it has applied everything before.
pub fn register(state: &mut State, broker: BrokerId) {
    let index = state.next_index();
    let mut config = state.config().clone();
    if let Some(replica) = config.replicas.get_mut(&broker) {
        (replica.confirmed, replica.boot_epoch) = (true, index);
    }
    config.partition_epoch = index;
    push(state, config.clone());
    let applied = state.entries.len();
    let node = state.node_mut(broker);
    (node.boot_epoch, node.applied) = (index, applied);
    node.apply(&config);
}
