//! The bytes of the format page.
use super::*;

#[test]
fn the_bytes_are_those_of_the_format_page() {
    let stamp = Stamp {
        incarnation: 7,
        partition: 2,
        leader_epoch: 3,
        base_offset: 40,
        chain: 0x0102_0304,
        not_before: 5,
    };
    let content = batch(1).stamp(&stamp);
    let of = format::Preamble {
        version: format::VERSION,
        number: 9,
        run: 8,
        salt: 7,
        before: format::WalPosition {
            number: 6,
            seed: 0x0506_0708,
            end: 500,
        },
        data_dir_id: 0x1213_1415_1617_1819,
        file_bytes: 64 << 20,
        link: 0,
    };
    let (preamble, of) = format::preamble(&of);
    let mut head = [0; format::FRAME_BYTES];
    let next = format::frame(&mut head, format::Kind::Batches, &content, of.link, of.link);
    let mut hex = String::new();
    for byte in preamble.iter().chain(&head) {
        write!(hex, "{byte:02x}").unwrap();
    }
    let vector =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/vectors/journal/frame.hex");
    assert_eq!(hex, fs::read_to_string(vector).unwrap().trim());
    let read = format::read_preamble(&preamble).unwrap();
    assert_eq!(read, of);
    let head_of = format::FrameHead::read(&head).unwrap();
    assert_eq!(
        (head_of.len, head_of.kind),
        (content.len(), format::Kind::Batches)
    );
    assert_eq!((head_of.link, head_of.checksum), (of.link, next));
    assert!(head_of.is_valid(&head, &content, of.link));
    assert!(!head_of.is_valid(&head, &content, of.link + 1));
    let found = format::batches(&content);
    assert_eq!((found.is_whole, found.runs.len(), found.end), (true, 1, 41));
}

#[test]
fn a_cut_has_the_bytes_of_the_format_page() {
    let cut = format::Cut {
        log: LogId {
            incarnation: 7,
            partition: 2,
        },
        offset: 40,
        epoch: 3,
    };
    let content = cut.to_bytes();
    let mut head = [0; format::FRAME_BYTES];
    let kind = format::Kind::Cut;
    let checksum = format::frame(&mut head, kind, &content, 0x0102_0304, 0x0506_0708);
    let mut hex = String::new();
    for byte in head.iter().chain(&content) {
        write!(hex, "{byte:02x}").unwrap();
    }
    let vector = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/vectors/journal/cut.hex");
    assert_eq!(hex, fs::read_to_string(vector).unwrap().trim());
    assert_eq!(format::Cut::read(&content), Some(cut));
    let read = format::FrameHead::read(&head).unwrap();
    assert_eq!(
        (read.kind, read.len, read.checksum),
        (kind, content.len(), checksum)
    );
    assert!(read.is_valid(&head, &content, 0x0506_0708));
}
