//! Encrypted and authenticated records of at most 65535 bytes, each with a length prefix.
//!
//! A changed, omitted, repeated or reordered record does not open, because each is sealed under its number.

use std::io;

use snow::TransportState;

/// Maximum length of a record in Noise.
const MAX_RECORD: usize = 65_535;
/// Bytes that authentication adds to a record.
const TAG: usize = 16;
/// Length prefix of a record in bytes, little-endian.
pub const PREFIX: usize = 2;
/// Maximum length of a record with its prefix.
pub const MAX_FRAME: usize = PREFIX + MAX_RECORD;
/// Maximum plaintext of one record in bytes.
pub const MAX_PLAINTEXT: usize = MAX_RECORD - TAG;

/// Number of records under one key, about a hundred gigabytes: far below AES-GCM's limit, and enough to make
/// the cost of a new key negligible.
#[cfg(not(test))]
const REKEY: u64 = 1 << 21;
/// Tests send more records than this.
#[cfg(test)]
const REKEY: u64 = 4;

/// Keys of one connection, one for each direction.
pub struct Session {
    keys: TransportState,
}

kolo_schedule::opaque_debug!(Session);

impl Session {
    pub(super) fn new(keys: TransportState) -> Session {
        Session { keys }
    }

    /// Seals `plain` (at most [`MAX_PLAINTEXT`] bytes) in `frame` as one record with its prefix.
    ///
    /// # Errors
    ///
    /// `plain` is longer.
    pub fn seal(&mut self, plain: &[u8], frame: &mut Vec<u8>) -> io::Result<()> {
        let long = u16::try_from(plain.len() + TAG).map_err(|_| io::ErrorKind::InvalidInput)?;
        frame.resize(PREFIX + usize::from(long), 0);
        frame[..PREFIX].copy_from_slice(&long.to_le_bytes());
        self.keys.write_message(plain, &mut frame[PREFIX..]).map_err(io::Error::other)?;
        if self.keys.sending_nonce().is_multiple_of(REKEY) {
            self.keys.rekey_outgoing();
        }
        Ok(())
    }

    /// Expects the first record again, so that a fuzzer needs no handshake for each input.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn rewind(&mut self) {
        self.keys.set_receiving_nonce(0);
    }

    /// Decrypts the next record, without its prefix, into `into`, which is at least as long as `record`.
    /// Returns the length of the plaintext.
    ///
    /// # Errors
    ///
    /// The record was changed in transit, or is not the next one.
    pub fn open(&mut self, record: &[u8], into: &mut [u8]) -> io::Result<usize> {
        let opened = self.keys.read_message(record, into).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "a record was changed on its way, or is out of order")
        })?;
        if self.keys.receiving_nonce().is_multiple_of(REKEY) {
            self.keys.rekey_incoming();
        }
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secure::handshake::tests::sessions;

    #[test]
    fn records_open_only_in_order() {
        let (mut left, mut right) = sessions();
        let (mut frame, mut into) = (Vec::new(), vec![0; MAX_RECORD]);
        for len in [0, 1, 1000, MAX_PLAINTEXT, 3, 4, 5, 6, 7] {
            let plain = vec![len as u8; len];
            left.seal(&plain, &mut frame).unwrap();
            assert_eq!(right.open(&frame[PREFIX..], &mut into).unwrap(), len);
            assert!(into[..len] == plain);
            assert!(right.open(&frame[PREFIX..], &mut into).is_err(), "repeated");
        }
        assert!(left.seal(&vec![0; MAX_PLAINTEXT + 1], &mut frame).is_err());
        left.seal(b"first", &mut frame).unwrap();
        left.seal(b"second", &mut frame).unwrap();
        assert!(right.open(&frame[PREFIX..], &mut into).is_err(), "one left out");
    }

    #[test]
    fn a_record_with_a_changed_bit_does_not_open() {
        let (mut left, mut right) = sessions();
        let (mut frame, mut into) = (Vec::new(), vec![0; MAX_RECORD]);
        left.seal(b"gradient", &mut frame).unwrap();
        let record = &mut frame[PREFIX..];
        for bit in 0..record.len() * 8 {
            record[bit / 8] ^= 1 << (bit % 8);
            assert!(right.open(record, &mut into).is_err());
            record[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(right.open(&record[..7], &mut into).is_err());
        assert_eq!(right.open(record, &mut into).unwrap(), 8, "what failed has not moved the session on");
    }
}
