//! Examples of the standard, violations of it, and random input.

use super::*;
use proptest::prelude::*;

fn read(from: Side, bytes: &[u8]) -> Result<Vec<Message>, FrameError> {
    let mut frames = Frames::new(from);
    frames.feed(bytes);
    let mut all = Vec::new();
    while let Some(message) = frames.message()? {
        all.push(message);
    }
    Ok(all)
}

fn data(text: &str) -> Message {
    Message::Data(text.as_bytes().to_vec())
}

#[test]
fn the_examples_of_the_standard_are_decoded() {
    // RFC 6455, sections 1.3 and 5.7.
    assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let hello = [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    assert_eq!(read(Side::Server, &hello), Ok(vec![data("Hello")]));
    let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(read(Side::Client, &masked), Ok(vec![data("Hello")]));
    // In two pieces, with a ping between them.
    let pieces = [
        0x01, 0x03, 0x48, 0x65, 0x6c, 0x89, 0x01, 0x21, 0x80, 0x02, 0x6c, 0x6f,
    ];
    assert_eq!(
        read(Side::Server, &pieces),
        Ok(vec![Message::Ping(vec![0x21]), data("Hello")])
    );
    let mut medium = vec![0x82, 0x7e, 0x01, 0x00];
    medium.extend([7; 256]);
    assert_eq!(read(Side::Server, &medium), Ok(vec![Message::Data(vec![7; 256])]));
    let mut long = vec![0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0];
    long.extend([7; 65536]);
    assert_eq!(read(Side::Server, &long), Ok(vec![Message::Data(vec![7; 65536])]));
}

#[test]
fn frames_are_written_as_in_the_standard() {
    assert_eq!(
        frame(&data("Hello"), None),
        [0x82, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]
    );
    assert_eq!(
        frame(&Message::Pong(b"Hello".to_vec()), Some([0x37, 0xfa, 0x21, 0x3d])),
        [0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]
    );
    assert_eq!(frame(&Message::Data(vec![7; 256]), None)[..4], [0x82, 0x7e, 1, 0]);
    assert_eq!(
        frame(&Message::Data(vec![7; 65536]), None)[..10],
        [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0]
    );
    assert_eq!(frame(&Message::Close(1005, String::new()), None), [0x88, 0]);
    assert_eq!(
        frame(&Message::Close(1000, "bye".to_owned()), None),
        [0x88, 5, 3, 232, b'b', b'y', b'e']
    );
}

#[test]
fn violations_of_the_standard_are_errors() {
    let cases: [(&[u8], FrameError); 11] = [
        (&[0xc1, 0], FrameError::Reserved),
        (&[0x83, 0], FrameError::Kind(3)),
        (&[0x8b, 0], FrameError::Kind(11)),
        (&[0x81, 0x80, 0, 0, 0, 0], FrameError::Masked(true)),
        (&[0x09, 0], FrameError::Control),
        (&[0x89, 126, 0, 126], FrameError::Control),
        (&[0x80, 0], FrameError::Order),
        (&[0x01, 0, 0x81, 0], FrameError::Order),
        (&[0x82, 127, 0, 0, 0, 0, 255, 0, 0, 0], FrameError::Long),
        (&[0x88, 1, 3], FrameError::Close),
        (&[0x88, 3, 3, 232, 0xff], FrameError::Close),
    ];
    for (bytes, expected) in cases {
        assert_eq!(read(Side::Server, bytes), Err(expected), "{bytes:x?}");
    }
    assert_eq!(read(Side::Client, &[0x81, 0]), Err(FrameError::Masked(false)));
    // Fragments that are short enough can add up to a message that is too long.
    let mut piece = vec![0x02, 127, 0, 0, 0, 0, 0, 0x80, 0, 0];
    piece.resize(10 + (8 << 20), 0);
    let mut frames = Frames::new(Side::Server);
    frames.feed(&piece);
    piece[0] = 0;
    frames.feed(&piece);
    assert_eq!(frames.message(), Ok(None));
    frames.feed(&[0x80, 1, 0]);
    assert_eq!(frames.message(), Err(FrameError::Long));
}

fn messages() -> impl Strategy<Value = Message> {
    let bytes = |len| proptest::collection::vec(any::<u8>(), 0..len);
    prop_oneof![
        bytes(300).prop_map(Message::Data),
        (65_530_usize..65_540).prop_map(|n| Message::Data(vec![9; n])),
        bytes(126).prop_map(Message::Ping),
        bytes(126).prop_map(Message::Pong),
        (1000_u16..1005, "[a-zé]{0,60}").prop_map(|(code, reason)| Message::Close(code, reason)),
    ]
}

proptest! {
    #[test]
    fn messages_round_trip_in_any_pieces(
        sent in proptest::collection::vec(messages(), 0..6),
        mask in any::<Option<[u8; 4]>>(),
        step in 1_usize..200,
    ) {
        let from = if mask.is_some() { Side::Client } else { Side::Server };
        let bytes: Vec<u8> = sent.iter().flat_map(|m| frame(m, mask)).collect();
        let mut frames = Frames::new(from);
        let mut received = Vec::new();
        for piece in bytes.chunks(step) {
            frames.feed(piece);
            while let Some(message) = frames.message().unwrap() {
                received.push(message);
            }
        }
        prop_assert_eq!(received, sent);
    }

    #[test]
    fn fragments_with_pings_between_them_are_one_message(
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..6),
    ) {
        let mut bytes = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let mut piece = frame(&Message::Data(part.clone()), None);
            piece[0] = if at == 0 { 2 } else { 0 };
            if at + 1 == parts.len() {
                piece[0] |= 0x80;
            }
            bytes.extend(piece);
            bytes.extend(frame(&Message::Ping(vec![]), None));
        }
        let mut received = read(Side::Server, &bytes).unwrap();
        received.retain(|m| !matches!(m, Message::Ping(_)));
        prop_assert_eq!(received, vec![Message::Data(parts.concat())]);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic_or_loop(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        is_client in any::<bool>(),
    ) {
        let from = if is_client { Side::Client } else { Side::Server };
        if let Ok(all) = read(from, &bytes) {
            prop_assert!(all.len() <= bytes.len() / 2);
        }
    }
}
