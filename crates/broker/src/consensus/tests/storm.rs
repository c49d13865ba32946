//! Three voters while links are cut and voters end and start at random: what was committed stays, where it was committed.
//!
//! `BASCULE_SEED` and `BASCULE_SEEDS` choose the first seed and how many (default 1 and 2). A seed gives the same actions, not the
//! same moments.
use super::three::{ALL, Group};
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

const ACTIONS: usize = 16;
/// Shorter than an election, so that many proposals end with an unknown outcome.
const PATIENCE: Duration = Duration::from_millis(150);

/// A small generator of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }

    fn voter(&mut self) -> u64 {
        1 + self.below(3)
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Proposes to each that runs, at the same time; notes what was committed, by index.
async fn propose(group: &mut Group, committed: &mut BTreeMap<u64, Bytes>) {
    let asked: Vec<_> = group
        .running
        .values()
        .map(|one| one.voter.clone())
        .collect();
    let asked = asked.into_iter().map(|voter| {
        let command = group.command();
        async move {
            (
                command.bytes.clone(),
                voter.propose(command, PATIENCE).await,
            )
        }
    });
    for (bytes, outcome) in futures_util::future::join_all(asked.collect::<Vec<_>>()).await {
        if let Ok(index) = outcome {
            assert_eq!(committed.insert(index, bytes), None, "entry {index} twice");
        }
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
}

async fn act(group: &mut Group, numbers: &mut Numbers) {
    let (one, other) = (numbers.voter(), numbers.voter());
    match numbers.below(8) {
        0 | 1 => drop(group.links.cut.lock().insert((one, other))),
        2 | 3 => group.links.cut.lock().extend([(one, other), (other, one)]),
        4 => group.links.cut.lock().clear(),
        _ if group.running.contains_key(&one) => group.kill(one).await,
        _ => group.start(one).await,
    }
}

async fn storm(seed: u64) {
    let mut numbers = Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut group = Group::founded().await;
    let mut committed = BTreeMap::new();
    for _ in 0..ACTIONS {
        act(&mut group, &mut numbers).await;
        for _ in 0..numbers.below(12) {
            propose(&mut group, &mut committed).await;
        }
    }
    group.links.cut.lock().clear();
    for id in ALL {
        if !group.running.contains_key(&id) {
            group.start(id).await;
        }
    }
    let last = group.propose(1, &ALL).await;
    let agreed = group.agreed().await;
    let found: BTreeMap<u64, Bytes> = agreed.iter().cloned().collect();
    for (index, bytes) in &committed {
        assert_eq!(found.get(index), Some(bytes), "seed {seed}, entry {index}");
    }
    let once: HashSet<&Bytes> = found.values().collect();
    assert_eq!(
        once.len(),
        agreed.len(),
        "seed {seed}: an entry is there twice"
    );
    assert!(once.contains(&last[0]), "seed {seed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_cuts_and_kills_loses_nothing() {
    let first = number("BASCULE_SEED", 1);
    for seed in first..first + number("BASCULE_SEEDS", 2) {
        storm(seed).await;
    }
}
