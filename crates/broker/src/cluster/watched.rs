//! What a member learns of the state: the runs of brokers, and whose roles entries change.
use super::{KnownRun, Member};
use crate::clock::since_boot;
use crate::replication::liveness::Run as WatchedRun;

impl Member {
    /// Registrations of brokers. Whoever is dialled learns of a later run of its own by them, and the controller whom to watch.
    pub fn know(&self, runs: &[KnownRun]) {
        for (raft_id, boot_epoch, nonce, is_fenced) in runs {
            if *nonce == 0 {
                // It has not registered since there is a cluster.
                continue;
            }
            if let Some(running) = self.shared.running.get() {
                running.brokers.know(*raft_id, *boot_epoch, *nonce);
            }
            let run = WatchedRun {
                broker: *raft_id,
                boot_epoch: *boot_epoch,
                is_fenced: *is_fenced,
            };
            self.shared.watch.know(run, since_boot());
        }
    }

    /// Watches the brokers as the controller of this term: what was committed before it is applied. `ended`: entries that ended a
    /// role of a broker which may not know of it (index, broker).
    pub fn watch_brokers(&self, term: u64, ended: &[(u64, u64)]) {
        self.shared.watch.begin(term, since_boot());
        for (index, broker) in ended {
            self.roles_changed(*index, &[(*broker, true)]);
        }
    }

    /// Entry `index`, applied here, has changed roles of these brokers, and ended one of those with `true`.
    pub fn roles_changed(&self, index: u64, brokers: &[(u64, bool)]) {
        self.shared
            .watch
            .roles_changed(index, brokers, since_boot());
    }
}
