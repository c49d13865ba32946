//! Where delivery begins.
use crate::liftbridge::position::{Bounds, begin};

const BOUNDS: Bounds = Bounds {
    log_start: 10,
    high_watermark: 20,
    log_end: 25,
};

#[test]
fn a_start_inside_the_log_is_kept() {
    assert_eq!(begin(10, BOUNDS), 10);
    assert_eq!(begin(19, BOUNDS), 19);
}

#[test]
fn a_start_below_the_log_begins_at_its_first_offset() {
    assert_eq!(begin(0, BOUNDS), 10);
}

#[test]
fn a_start_beyond_the_high_watermark_begins_at_the_end_of_the_log_at_most() {
    assert_eq!(begin(20, BOUNDS), 20);
    assert_eq!(begin(24, BOUNDS), 24, "it waits for the commit");
    assert_eq!(begin(100, BOUNDS), 25);
}

#[test]
fn an_empty_log_begins_at_its_end() {
    let empty = Bounds {
        log_start: 0,
        high_watermark: 0,
        log_end: 0,
    };
    assert_eq!(begin(0, empty), 0);
    assert_eq!(begin(7, empty), 0);
    let trimmed = Bounds {
        log_start: 5,
        high_watermark: 5,
        log_end: 5,
    };
    assert_eq!(begin(0, trimmed), 5);
}
