//! Packed numbers of a few bits, and conversion of bytes to `f32`.

use kolo_optim::vectorized;

/// Returns the `f32` of four little-endian bytes.
pub(super) fn float(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Bytes of `len` numbers of `bits` bits.
pub(super) fn packed_bytes(len: usize, bits: u32) -> usize {
    (len * bits as usize).div_ceil(8)
}

/// Writes numbers of `bits` bits, at most 16, the low bits first.
pub(super) fn pack(numbers: &[u16], bits: u32, bytes: &mut [u8]) {
    match bits {
        2 => pack_whole::<4>(numbers, bytes),
        4 => pack_whole::<2>(numbers, bytes),
        8 => pack_whole::<1>(numbers, bytes),
        _ => pack_across(numbers, bits, bytes),
    }
}

/// Reads numbers that [`pack`] has written.
pub(super) fn unpack(bytes: &[u8], bits: u32, numbers: &mut [u16]) {
    match bits {
        2 => unpack_whole::<4>(bytes, numbers),
        4 => unpack_whole::<2>(bytes, numbers),
        8 => unpack_whole::<1>(bytes, numbers),
        _ => unpack_across(bytes, bits, numbers),
    }
}

/// Packs numbers of which each byte holds `IN_BYTE`.
fn pack_whole<const IN_BYTE: usize>(numbers: &[u16], bytes: &mut [u8]) {
    vectorized(
        #[inline(always)]
        || {
            for (byte, numbers) in bytes.iter_mut().zip(numbers.chunks(IN_BYTE)) {
                let placed = |(place, number): (usize, &u16)| (*number as u8) << (place * (8 / IN_BYTE));
                *byte = numbers.iter().enumerate().map(placed).fold(0, |byte, number| byte | number);
            }
        },
    );
}

fn unpack_whole<const IN_BYTE: usize>(bytes: &[u8], numbers: &mut [u16]) {
    let (bits, mask) = (8 / IN_BYTE, u8::MAX >> (8 - 8 / IN_BYTE));
    vectorized(
        #[inline(always)]
        || {
            for (numbers, byte) in numbers.chunks_mut(IN_BYTE).zip(bytes) {
                let places = numbers.iter_mut().enumerate();
                places.for_each(|(place, number)| *number = u16::from(byte >> (place * bits) & mask));
            }
        },
    );
}

/// Packs numbers that may begin in one byte and end in another.
fn pack_across(numbers: &[u16], bits: u32, bytes: &mut [u8]) {
    let (mut waiting, mut count, mut bytes) = (0u32, 0, bytes.iter_mut());
    let mut write = |byte: u32| {
        if let Some(place) = bytes.next() {
            *place = byte as u8;
        }
    };
    for number in numbers {
        waiting |= u32::from(*number) << count;
        count += bits;
        while count >= 8 {
            write(waiting);
            (waiting, count) = (waiting >> 8, count - 8);
        }
    }
    if count > 0 {
        write(waiting);
    }
}

fn unpack_across(bytes: &[u8], bits: u32, numbers: &mut [u16]) {
    let (mut waiting, mut count, mut bytes) = (0u32, 0, bytes.iter());
    for number in numbers {
        while count < bits {
            waiting |= u32::from(bytes.next().copied().unwrap_or(0)) << count;
            count += 8;
        }
        *number = (waiting & ((1 << bits) - 1)) as u16;
        (waiting, count) = (waiting >> bits, count - bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        for bits in 1..=16 {
            for len in [0usize, 1, 7, 8, 9, 100] {
                let numbers: Vec<u16> = (0..len).map(|i| ((i * 40_503 + 7) % (1 << bits)) as u16).collect();
                let mut bytes = vec![0xff; packed_bytes(len, bits)];
                pack(&numbers, bits, &mut bytes);
                let mut unpacked = vec![0; len];
                unpack(&bytes, bits, &mut unpacked);
                assert_eq!(unpacked, numbers, "{bits} bits");
            }
        }
    }
}
