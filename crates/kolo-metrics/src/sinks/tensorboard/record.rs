//! The framing of an event file, TensorFlow's record format (`tensorflow/core/lib/io/record_writer.cc`): the
//! length as a `u64`, its masked CRC-32C, the data, and their masked CRC-32C. All little-endian.

/// Bytes before the data: the length and its checksum.
const HEAD: usize = 12;
/// Bytes after the data.
const TAIL: usize = 4;

/// Returns TensorFlow's masked checksum. A checksum over data that contain checksums is weak without the mask
/// (`tensorflow/core/lib/hash/crc32c.h`).
fn masked_crc(data: &[u8]) -> [u8; 4] {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

pub(super) fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked_crc(&length), data, &masked_crc(data)].concat()
}

/// Returns the records of a file up to its end, or to the first that is cut off or damaged: each with its
/// frame, and its data.
pub(super) fn records(mut file: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let length = file.first_chunk::<8>()?;
        if file.get(8..HEAD)? != masked_crc(length) {
            return None;
        }
        let end = usize::try_from(u64::from_le_bytes(*length)).ok()?.checked_add(HEAD)?;
        let data = file.get(HEAD..end)?;
        if file.get(end..end.checked_add(TAIL)?)? != masked_crc(data) {
            return None;
        }
        let (record, rest) = file.split_at(end + TAIL);
        file = rest;
        Some((record, data))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_tensorflows() {
        // tf.io.TFRecordWriter(path).write(b"kolo"), the checksums by the definition in record_writer.cc.
        let crc = |data: &[u8]| {
            let mut crc = !0u32;
            for byte in data {
                crc ^= u32::from(*byte);
                (0..8).for_each(|_| crc = (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1)));
            }
            let crc = !crc;
            crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
        };
        let length = [4, 0, 0, 0, 0, 0, 0, 0];
        let expected = [&length[..], &crc(&length), b"kolo", &crc(b"kolo")].concat();
        assert_eq!(frame(b"kolo"), expected);
    }

    #[test]
    fn records_end_at_the_first_that_is_damaged() {
        let file = [frame(b"a"), frame(b""), frame(b"ccc")].concat();
        let read = |file: &[u8]| records(file).map(|(_, data)| data.to_vec()).collect::<Vec<_>>();
        assert_eq!(read(&file), [&b"a"[..], b"", b"ccc"]);
        for cut in 0..file.len() {
            assert!(read(&file[..cut]).len() < 3);
        }
        for place in 0..file.len() {
            let mut damaged = file.clone();
            damaged[place] ^= 1;
            assert!(read(&damaged).len() < 3, "{place}");
        }
    }
}
