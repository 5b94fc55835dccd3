//! One record on the disk: length, checksum, number, bytes.

use crate::error::JournalError;
use crate::{Seq, files};

/// Bytes before the payload.
const HEAD: usize = 16;
/// A larger length is a sign of damage.
const MOST: usize = 64 << 20;

/// Adds a frame.
pub(crate) fn write(to: &mut Vec<u8>, seq: Seq, payload: &[u8]) -> Result<(), JournalError> {
    if payload.len() > MOST {
        return Err(JournalError::TooLarge {
            bytes: payload.len(),
            most: MOST,
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

/// A frame that was read.
pub(crate) struct Frame<'a> {
    pub(crate) seq: Seq,
    pub(crate) payload: &'a [u8],
    /// Where the next one begins.
    pub(crate) end: usize,
}

/// The frame at a place; none if there is no whole and sound one.
pub(crate) fn read(bytes: &[u8], at: usize) -> Option<Frame<'_>> {
    let rest = bytes.get(at..)?;
    let length = u32::from_le_bytes(rest.get(0..4)?.try_into().ok()?) as usize;
    let sum = u32::from_le_bytes(rest.get(4..8)?.try_into().ok()?);
    let number: [u8; 8] = rest.get(8..HEAD)?.try_into().ok()?;
    if length > MOST {
        return None;
    }
    let payload = rest.get(HEAD..HEAD + length)?;
    (checksum(number, payload) == sum).then(|| Frame {
        seq: Seq::from_le_bytes(number),
        payload,
        end: at + HEAD + length,
    })
}

/// Whether a sound frame with a number from `from` on begins anywhere after this place.
pub(crate) fn any_after(bytes: &[u8], at: usize, from: Seq) -> bool {
    // A record added now has a number close to the last; anything else is a coincidence of bytes.
    let near = from..from + files::NEAR;
    (at + 1..bytes.len().saturating_sub(HEAD)).any(|place| {
        let number = bytes.get(place + 8..place + HEAD).and_then(|b| b.try_into().ok());
        number.is_some_and(|b| near.contains(&Seq::from_le_bytes(b))) && read(bytes, place).is_some()
    })
}
