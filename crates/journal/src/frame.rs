//! Frames: the records of a file, each with length, checksum and number.

use crate::error::JournalError;
use crate::{Seq, files};

/// Size of the frame header in bytes.
const HEADER: usize = 16;
/// Largest payload in bytes; a larger length means that the file is damaged.
const MAX_PAYLOAD: usize = 64 << 20;

/// Appends a frame.
pub(crate) fn write(to: &mut Vec<u8>, seq: Seq, payload: &[u8]) -> Result<(), JournalError> {
    if payload.len() > MAX_PAYLOAD {
        return Err(JournalError::TooLarge {
            bytes: payload.len(),
            max: MAX_PAYLOAD,
        });
    }
    let number = seq.to_le_bytes();
    to.extend((payload.len() as u32).to_le_bytes());
    to.extend(checksum(number, payload).to_le_bytes());
    to.extend(number);
    to.extend(payload);
    Ok(())
}

fn checksum(number: [u8; 8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number);
    hasher.update(payload);
    hasher.finalize()
}

/// A valid frame.
pub(crate) struct Frame<'a> {
    pub(crate) seq: Seq,
    pub(crate) payload: &'a [u8],
    /// Offset of the next frame.
    pub(crate) end: usize,
}

/// Returns the frame at an offset, or `None` if it is incomplete or invalid.
pub(crate) fn read(bytes: &[u8], at: usize) -> Option<Frame<'_>> {
    let rest = bytes.get(at..)?;
    let length = u32::from_le_bytes(rest.get(0..4)?.try_into().ok()?) as usize;
    let sum = u32::from_le_bytes(rest.get(4..8)?.try_into().ok()?);
    let number: [u8; 8] = rest.get(8..HEADER)?.try_into().ok()?;
    if length > MAX_PAYLOAD {
        return None;
    }
    let payload = rest.get(HEADER..HEADER + length)?;
    (checksum(number, payload) == sum).then(|| Frame {
        seq: Seq::from_le_bytes(number),
        payload,
        end: at + HEADER + length,
    })
}

/// Returns whether a valid frame with a number from `from` on begins anywhere after this offset.
pub(crate) fn any_after(bytes: &[u8], at: usize, from: Seq) -> bool {
    // Numbers of real records are close to the last one; other matches are coincidental.
    let near = from..from + files::MAX_SEQ_DISTANCE;
    (at + 1..bytes.len().saturating_sub(HEADER)).any(|place| {
        let number = bytes
            .get(place + 8..place + HEADER)
            .and_then(|b| b.try_into().ok());
        number.is_some_and(|b| near.contains(&Seq::from_le_bytes(b))) && read(bytes, place).is_some()
    })
}
