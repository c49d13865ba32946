//! The moves from one state to the next.
use crate::apply;
use crate::common::fetch;
use crate::state::{BROKERS, Frame, NOW, Role, State, later};
use bascule_replica::follower::{self, Answer, Batch, Own};
use bascule_replica::leader::{self, AckPolicy, Event, Fetch, Outcome};
use bascule_replica::types::BrokerId;

/// A move: its kind, and the brokers that it is about.
pub type Move = (&'static str, BrokerId, BrokerId);

/// Every state that one move leads to, with the name of the move.
pub fn successors(state: &State, frames: usize) -> Vec<(Move, State)> {
    let mut out = Vec::new();
    for id in BROKERS {
        local(state, id, frames, &mut out);
    }
    for (&(from, to), frame) in &state.frames {
        let delivered = match frame {
            Frame::Fetch(fetch) => deliver_fetch(state, from, to, fetch),
            Frame::Answer(answer) => Some(deliver_answer(state, from, to, answer)),
        };
        if let Some(next) = delivered {
            out.push((("deliver", from, to), next));
        }
        if state.budget.losses > 0 {
            let mut next = lose(state, from, to);
            next.budget.losses -= 1;
            out.push((("lose", from, to), next));
        }
    }
    controller(state, &mut out);
    out
}

fn local(state: &State, id: BrokerId, frames: usize, out: &mut Vec<(Move, State)>) {
    let node = state.node(id);
    if node.applied < state.entries.len() {
        let mut next = state.clone();
        let config = next.entries[node.applied].clone();
        let node = next.node_mut(id);
        node.applied += 1;
        node.apply(&config);
        note_commits(&mut next, id);
        out.push((("apply", id, id), next));
    }
    // Without a crash a late sync is no more than a late fetch.
    if state.budget.crashes > 0 && node.durable < node.log.end() {
        let mut next = state.clone();
        sync(&mut next, id);
        out.push((("sync", id, id), next));
    }
    match &node.role {
        Role::Leader(leader) => leads(state, id, leader, out),
        Role::Follower(_) if state.frames.len() < frames => follows(state, id, out),
        _ => {}
    }
    if state.budget.crashes > 0 && !matches!(node.role, Role::Idle) {
        let mut next = state.clone();
        next.budget.crashes -= 1;
        let node = next.node_mut(id);
        node.log.0.truncate(node.durable as usize);
        node.high_watermark = node.high_watermark.min(node.log.end());
        (node.learned, node.role) = (false, Role::Idle);
        next.frames.retain(|&(from, to), _| from != id && to != id);
        out.push((("crash", id, id), next));
    }
}

fn sync(state: &mut State, id: BrokerId) {
    let node = state.node_mut(id);
    node.durable = node.log.end();
    let end = node.durable;
    if let Role::Leader(leader) = &mut node.role {
        leader.step(Event::Durable { end }, NOW);
    }
    note_commits(state, id);
}

fn leads(state: &State, id: BrokerId, leader: &leader::Leader, out: &mut Vec<(Move, State)>) {
    if state.budget.records > 0 && leader.admit(AckPolicy::Leader, NOW).is_ok() {
        let mut next = state.clone();
        let record = u64::from(next.budget.records);
        next.budget.records -= 1;
        let node = next.node_mut(id);
        node.log.0.push(leader.config().leader_epoch * 8 + record);
        let end = node.log.end();
        if let Role::Leader(leader) = &mut node.role {
            leader.step(Event::Appended { end }, NOW);
        }
        if state.budget.crashes == 0 {
            sync(&mut next, id);
        }
        out.push((("append", id, id), next));
    }
    if state.budget.shrinks == 0 {
        return;
    }
    for &member in leader.config().isr.iter().filter(|&&member| member != id) {
        let mut next = state.clone();
        next.budget.shrinks -= 1;
        if let Role::Leader(leader) = &mut next.node_mut(id).role {
            let actions = leader.step(Event::Leaving(member), NOW);
            propose(&mut next, id, &actions);
            out.push((("shrink", id, member), next));
        }
    }
}

fn follows(state: &State, id: BrokerId, out: &mut Vec<(Move, State)>) {
    let mut next = state.clone();
    let node = next.node_mut(id);
    let Role::Follower(follower) = &mut node.role else {
        return;
    };
    let leader_epoch = follower.leader_epoch();
    let actions = follower.step(follower::Event::Tick, later());
    node.to_send |= asks(&actions);
    if !node.to_send {
        return;
    }
    node.to_send = false;
    let mut frame = Fetch {
        leader_epoch,
        boot_epoch: node.boot_epoch,
        ..fetch(id, &node.log)
    };
    frame.position.epoch /= 8;
    (frame.durable, frame.durable_link) = (node.durable, node.log.link(node.durable));
    let leader = state.entries[node.applied - 1].leader;
    let Some(leader) = leader else { return };
    // A new fetch is a new try: what the connection still carried is gone.
    next.frames.insert((id, leader), Frame::Fetch(frame));
    out.push((("fetch", id, id), next));
}

fn asks(actions: &follower::Actions) -> bool {
    actions
        .iter()
        .any(|action| matches!(action, follower::Action::Fetch { .. }))
}

fn lose(state: &State, from: BrokerId, to: BrokerId) -> State {
    let mut next = state.clone();
    next.frames.remove(&(from, to));
    let followed = next.entries[next.node(from).applied - 1].leader;
    if let Role::Follower(follower) = &mut next.node_mut(from).role
        && followed == Some(to)
    {
        let actions = follower.step(follower::Event::Disconnected, NOW);
        next.node_mut(from).to_send = asks(&actions);
    }
    next
}

/// Drops a fetch that nobody waits for any more.
fn forget(state: &State, from: BrokerId, to: BrokerId) -> Option<State> {
    let node = state.node(from);
    let waits = matches!(node.role, Role::Follower(_))
        && state.entries[node.applied - 1].leader == Some(to);
    (!waits).then(|| {
        let mut next = state.clone();
        next.frames.remove(&(from, to));
        next
    })
}

fn deliver_fetch(state: &State, from: BrokerId, to: BrokerId, fetch: &Fetch) -> Option<State> {
    let node = state.node(to);
    // The follower asks again until its role or that of the broker changes: no more than a late fetch.
    let Role::Leader(_) = &node.role else {
        return forget(state, from, to);
    };
    let mut found = node.log.found(fetch);
    found.epoch_end = node
        .log
        .epoch_end(fetch.position.epoch * 8 + 7)
        .map(|mut own| {
            own.epoch /= 8;
            own
        });
    let mut next = state.clone();
    let node = next.node_mut(to);
    let Role::Leader(leader) = &mut node.role else {
        return None;
    };
    let actions = leader.step(Event::Fetch(fetch.clone(), found), NOW);
    let leader_epoch = leader.config().leader_epoch;
    let mut batches = Vec::new();
    let mut answered = None;
    for action in &actions {
        match action {
            leader::Action::Park(..) => return None,
            leader::Action::Answer(_, outcome) => answered = Some(outcome.clone()),
            _ => {}
        }
    }
    let outcome = answered?;
    if matches!(outcome, Outcome::WrongEpoch { .. }) {
        return forget(state, from, to);
    }
    if matches!(outcome, Outcome::Ok { .. }) {
        batches = (fetch.position.end..node.log.end())
            .map(|base| Batch {
                base,
                end: base + 1,
                epoch: node.log.0[base as usize] / 8,
                chain: node.log.link(base),
                link: node.log.link(base + 1),
            })
            .collect();
    }
    let contents: Vec<_> = batches
        .iter()
        .map(|batch| node.log.0[batch.base as usize])
        .collect();
    propose(&mut next, to, &actions);
    note_commits(&mut next, to);
    // The model's batches carry their content in the link's place: one number each.
    let batches = batches
        .into_iter()
        .zip(contents)
        .map(|(batch, content)| Batch {
            end: batch.base + 1,
            epoch: content,
            ..batch
        });
    let answer = Answer {
        leader_epoch,
        attempt: 1,
        outcome,
        batches: batches.collect(),
    };
    next.frames.insert((from, to), Frame::Answer(answer));
    Some(next)
}

fn deliver_answer(state: &State, from: BrokerId, to: BrokerId, answer: &Answer) -> State {
    let mut next = state.clone();
    next.frames.remove(&(from, to));
    let node = next.node_mut(from);
    let contents: Vec<_> = answer.batches.iter().map(|batch| batch.epoch).collect();
    let mut answer = answer.clone();
    for batch in &mut answer.batches {
        batch.epoch /= 8;
    }
    let named = if let Outcome::Diverged { epoch, .. } = answer.outcome {
        epoch
    } else {
        0
    };
    let mut position = node.log.position();
    position.epoch /= 8;
    let last_batch = position.end.saturating_sub(1);
    let epoch_end = node.log.epoch_end(named * 8 + 7);
    let Role::Follower(follower) = &mut node.role else {
        return next;
    };
    answer.attempt = follower.attempt();
    let actions = follower.step(
        follower::Event::Answered(
            answer,
            Own {
                position,
                last_batch,
                epoch_end,
            },
        ),
        NOW,
    );
    node.to_send |= asks(&actions);
    let mut cut = None;
    let mut wrong = None;
    for action in &actions {
        match action {
            follower::Action::Append { batches } => {
                node.log.0.extend(contents.iter().take(*batches));
            }
            follower::Action::RaiseHighWatermark(end) => {
                node.high_watermark = (*end).min(node.log.end());
            }
            follower::Action::Truncate { to, keep: false } => cut = Some(*to),
            follower::Action::ReportLeader { .. } => {
                wrong = Some("R6: a follower reported its leader");
            }
            follower::Action::ReportSelfUnclean => {
                wrong = Some("R6: a follower would truncate below its high watermark");
            }
            follower::Action::Fetch { .. } | follower::Action::FollowStart(_) => {}
            _ => wrong = Some("an action that nothing here leads to"),
        }
    }
    node.learned |= follower.has_learned();
    if let Some(to) = cut {
        node.to_send |= asks(&follower.step(follower::Event::Cut { end: to }, NOW));
        node.cut(to);
    }
    next.wrong = wrong;
    if state.budget.crashes == 0 {
        sync(&mut next, from);
    }
    next
}

fn propose(state: &mut State, from: BrokerId, actions: &leader::Actions) {
    for action in actions {
        match action {
            leader::Action::ProposeIsr(change) => {
                let current = (state.config().leader_epoch, state.config().partition_epoch);
                if (change.leader_epoch, change.partition_epoch) == current {
                    state.add_proposal(from, change);
                }
            }
            leader::Action::ReportUnclean(..) => state.wrong = Some("R5: a counted end is gone"),
            _ => {}
        }
    }
}

/// Whatever a leader's high watermark covers is committed.
fn note_commits(state: &mut State, id: BrokerId) {
    let node = state.node_mut(id);
    node.note_watermark();
    if !matches!(node.role, Role::Leader(_)) {
        return;
    }
    let known = node.log.0[..node.high_watermark as usize].to_vec();
    if known.starts_with(&state.committed) {
        state.committed = known;
    } else if !state.committed.starts_with(&known) {
        state.wrong = Some("R2: two leaders committed different histories");
    }
}

fn controller(state: &State, out: &mut Vec<(Move, State)>) {
    for (from, isr, verified, leader_epoch, partition_epoch) in &state.proposals {
        let config = state.config();
        if (config.leader_epoch, config.partition_epoch) == (*leader_epoch, *partition_epoch) {
            let mut next = state.clone();
            apply::change_isr(&mut next, isr, verified);
            out.push((("change_isr", *from, *from), next));
        }
    }
    if state.budget.elections > 0 {
        for broker in apply::candidates(state.config()) {
            let mut next = state.clone();
            next.budget.elections -= 1;
            apply::elect(&mut next, broker);
            out.push((("elect", broker, broker), next));
        }
    }
    for id in BROKERS {
        let confirmed = state
            .config()
            .replicas
            .get(&id)
            .is_some_and(|replica| replica.confirmed);
        let idle = matches!(state.node(id).role, Role::Idle);
        let mut next = state.clone();
        if confirmed
            && idle
            && state.config().leader != Some(id)
            && state.node(id).applied == state.entries.len()
        {
            apply::fence(&mut next, id);
            out.push((("fence", id, id), next));
        } else if !confirmed && idle {
            apply::register(&mut next, id);
            out.push((("register", id, id), next));
        }
    }
}
