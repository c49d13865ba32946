//! Pieces for tests of what reads them.
use super::destination::StagePartition;
use super::piece::PieceId;
use super::store::Stage;
use super::writer::PieceWriter;
use bascule_record::SealedBatch;
use std::time::Instant;

impl Stage {
    /// Seals a piece of these batches, whose rows have this digest.
    pub(crate) fn put(
        &self,
        partition: &StagePartition,
        id: PieceId,
        batches: Vec<SealedBatch>,
        digest: u128,
    ) {
        let mut piece = PieceWriter::new(self.folder_of(partition), id, self.next_file());
        for batch in batches {
            let stamped = piece.stamp(&partition.reader, batch).unwrap();
            piece.append(&stamped).unwrap();
        }
        piece.seal(digest).unwrap();
        self.index().add_found(
            partition.incarnation,
            id,
            piece.file_bytes(),
            Instant::now(),
        );
    }
}
