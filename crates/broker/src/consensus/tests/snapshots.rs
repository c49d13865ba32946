//! A voter that missed entries which the log of the others does not have any more follows by a snapshot.
use super::recorder::Recorder;
use super::three::{ALL, Chunks, Group, until, without};
use crate::consensus::machine::Machine;
use bytes::Bytes;
use openraft::storage::RaftStateMachine;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Chunks of the state below.
const CHUNKS: u64 = 2;

/// A state of two chunks.
fn state(index: u64) -> Bytes {
    let text = format!("state of entry {index}, ");
    text.repeat((1_500_000 / text.len()) + 1).into()
}

/// Three voters of which one is down, and the others have shortened their logs past its end: its number, and the newest snapshot.
async fn one_behind() -> (Group, u64, u64) {
    let mut group = Group::founded().await;
    group.propose(5, &ALL).await;
    group.agreed().await;
    let leader = group.leader(&ALL).await;
    let behind = without(&ALL, leader)[0];
    let its_end = group.running[&behind].voter.last_index();
    group.kill(behind).await;
    let others = without(&ALL, behind);
    let mut newest = 0;
    for _ in 0..2 {
        group.propose(5, &others).await;
        group.agreed().await;
        for id in &others {
            let broker = &group.running[id];
            newest = broker.recorder.commands().last().unwrap().0;
            broker
                .voter
                .save_snapshot(newest, state(newest))
                .await
                .unwrap();
        }
    }
    for id in &others {
        let voter = &group.running[id].voter;
        until("a shorter log", || {
            (voter.first_index() > its_end).then_some(())
        })
        .await;
    }
    group.propose(3, &others).await;
    (group, behind, newest)
}

/// Starts the one that is behind, and waits until it has all that the others have.
async fn follows(group: &mut Group, behind: u64, newest: u64) {
    group.start(behind).await;
    let leader = group.leader(&without(&ALL, behind)).await;
    let last = |id: u64| group.running[&id].recorder.commands().last().cloned();
    until("the entries after the snapshot", || {
        assert_eq!(group.running[&behind].voter.failure(), None);
        (last(behind).is_some() && last(behind) == last(leader)).then_some(())
    })
    .await;
    assert!(group.running[&behind].voter.first_index() > newest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_behind_the_log_of_the_others_follows_by_a_snapshot() {
    let (mut group, behind, newest) = one_behind().await;
    follows(&mut group, behind, newest).await;
    let installed = group.running[&behind].recorder.installed();
    assert_eq!(installed, Some((newest, state(newest))));
    // It is whole: it leads, and the next start begins with the snapshot.
    let leader = group.leader(&ALL).await;
    if leader != behind {
        group.kill(leader).await;
        group.propose(3, &without(&ALL, leader)).await;
        group.start(leader).await;
    }
    group.kill(behind).await;
    group.start(behind).await;
    let more = group.propose(2, &ALL).await;
    until("the last entry", || {
        let commands = group.running[&behind].recorder.commands();
        (commands.last().map(|(_, bytes)| bytes) == more.last()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_ends_half_way_or_arrives_damaged_is_sent_again() {
    let (mut group, behind, newest) = one_behind().await;
    let faults = [Chunks::Lost, Chunks::Damaged, Chunks::Lost];
    group.links.faults.lock().extend(faults);
    follows(&mut group, behind, newest).await;
    assert_eq!(group.links.faults.lock().len(), 0);
    let sent = group.links.chunks.load(Ordering::Acquire);
    assert!(sent >= CHUNKS * (1 + faults.len() as u64), "{sent} chunks");
    let installed = group.running[&behind].recorder.installed();
    assert_eq!(installed, Some((newest, state(newest))));
}

/// The snapshot has its name, and the log was not reset; before that, a part of it has its temporary name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_ends_while_it_installs_continues_from_what_it_has() {
    let (mut group, behind, newest) = one_behind().await;
    let leader = group.leader(&without(&ALL, behind)).await;
    let source = group.directories[&leader].path().to_path_buf();
    let target = group.directories[&behind].path().to_path_buf();
    let name = format!("snapshot-{newest:020}");
    fs::write(target.join("snapshot.tmp"), b"half of it").unwrap();
    group.start(behind).await;
    group.kill(behind).await;
    if !target.join(&name).exists() {
        fs::copy(source.join(&name), target.join(&name)).unwrap();
    }
    let (mut machine, index, _) = Machine::open(target, Arc::<Recorder>::default()).unwrap();
    assert_eq!(index, newest);
    assert!(machine.get_current_snapshot().await.unwrap().is_some());
    drop(machine);
    follows(&mut group, behind, newest).await;
}
