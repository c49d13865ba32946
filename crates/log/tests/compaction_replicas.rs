//! Compaction of a log with other replicas: only what all of them have.
#![allow(clippy::unwrap_used)]
mod keyed;
mod support;
use bascule_log::Compaction;
use keyed::*;
use support::*;

#[test]
fn records_that_a_replica_lacks_supersede_nothing_and_stay() {
    let home = Home::new();
    let mut log = home.create(small(200));
    for round in 0..8_u8 {
        put(&mut log, &[(b"a", Some(&[round; 40]))]);
        put(&mut log, &[(b"b", Some(&[round; 40]))]);
    }
    settle(&mut log);
    let offsets = |log: &bascule_log::Log| -> Vec<u64> {
        let kept = read_keyed(&log.reader(), 0);
        kept.iter().map(|record| record.offset).collect()
    };
    let whole: Vec<u64> = (0..16).collect();
    let link = log.link_at(8).unwrap();
    assert!(link.is_some());
    for replicated_to in [0, 1] {
        let compaction = Compaction {
            replicated_to,
            ..Compaction::default()
        };
        let report = compact(&mut log, &compaction, 0);
        assert!(report.is_none_or(|report| report.records == 0));
        assert_eq!(offsets(&log), whole);
    }
    let compaction = Compaction {
        replicated_to: 8,
        ..Compaction::default()
    };
    compact(&mut log, &compaction, 0).unwrap();
    let kept = offsets(&log);
    assert!(kept.len() < whole.len(), "{kept:?}");
    assert!(
        kept.contains(&6) && kept.contains(&7),
        "the latest that all have, although there are later ones"
    );
    assert_eq!(kept[kept.len() - 8..], whole[8..]);
    assert_eq!(log.link_at(8).unwrap(), link, "where a replica continues");
    assert!(
        compact(&mut log, &compaction, 0).is_none(),
        "what is above is not counted as new"
    );
    compact(&mut log, &Compaction::default(), 0).unwrap();
    assert!(!offsets(&log).contains(&6));
    check_chain(&home.path());
}
