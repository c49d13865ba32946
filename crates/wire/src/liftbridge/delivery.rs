//! `Message` frames for Subscribe, straight from batch columns.
use bascule_record::Batch;

/// Writes deliveries of one partition. The constant parts (stream, partition, subject, the `subject` and `reply` headers)
/// are prepared once, and again when the subject changes.
#[derive(Debug)]
pub struct DeliveryEncoder {
    _private: (),
}
impl DeliveryEncoder {
    /// `subject`: what records without a subject of their own are shown with.
    pub fn new(_stream: &str, _partition: i32, _subject: &str) -> Self {
        todo!()
    }
    /// Appends one gRPC frame (5-byte prefix included) for record `i`: offset, key, value, timestamp, stream, partition,
    /// subject, replySubject, headers (string-keyed ones, then `subject` and `reply`, which overwrite user headers of those names).
    pub fn put_frame(&mut self, _out: &mut Vec<u8>, _batch: &Batch, _i: usize) {
        todo!()
    }
    /// Frames for records `[from, to)` until `out` has at least `limit` bytes; returns the first record not written.
    pub fn put_frames(&mut self, _out: &mut Vec<u8>, _batch: &Batch, _from: usize, _to: usize, _limit: usize) -> usize {
        todo!()
    }
}
