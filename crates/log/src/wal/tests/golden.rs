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
        sequence: 9,
        life: 8,
        salt: 7,
        before: format::Reached {
            sequence: 6,
            seed: 0x0506_0708,
            end: 500,
        },
        home: 0x1213_1415_1617_1819,
        file_bytes: 64 << 20,
        link: 0,
    };
    let (preamble, of) = format::preamble(&of);
    let mut head = [0; format::FRAME_BYTES];
    let next = format::frame(&mut head, &content, of.link, of.seal());
    let mut hex = String::new();
    for byte in preamble.iter().chain(&head) {
        write!(hex, "{byte:02x}").unwrap();
    }
    let vector =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/vectors/journal/frame.hex");
    assert_eq!(hex, fs::read_to_string(vector).unwrap().trim());
    let read = format::read_preamble(&preamble).unwrap();
    assert_eq!(read, of);
    assert_eq!(format::announced(&head), Some(content.len()));
    assert_eq!(format::link(&head), of.link);
    assert_eq!(format::next_link(&head), next);
    assert_eq!(
        format::computed(&head, &content, of.link, read.seal()),
        next
    );
    let found = format::batches(&content, None);
    assert_eq!((found.is_whole, found.runs.len(), found.end), (true, 1, 41));
}
