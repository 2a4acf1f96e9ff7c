//! Numbers of a few bits, packed one behind the other, and the bytes of others.

/// The number that four bytes say.
pub(super) fn float(word: &[u8]) -> f32 {
    f32::from_le_bytes([word[0], word[1], word[2], word[3]])
}

/// Bytes of `len` numbers of `bits` bits.
pub(super) fn packed_bytes(len: usize, bits: u32) -> usize {
    (len * bits as usize).div_ceil(8)
}

/// Writes numbers of `bits` bits, at most 16, the low bits first.
pub(super) fn pack(numbers: impl Iterator<Item = u16>, bits: u32, bytes: &mut [u8]) {
    let (mut waiting, mut count, mut bytes) = (0u32, 0, bytes.iter_mut());
    let mut write = |byte: u32| {
        if let Some(place) = bytes.next() {
            *place = byte as u8;
        }
    };
    for number in numbers {
        waiting |= u32::from(number) << count;
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

/// Reads what [`pack`] has written.
pub(super) fn unpack(bytes: &[u8], bits: u32) -> impl Iterator<Item = u16> {
    let (mut waiting, mut count, mut bytes) = (0u32, 0, bytes.iter());
    std::iter::from_fn(move || {
        while count < bits {
            waiting |= u32::from(*bytes.next()?) << count;
            count += 8;
        }
        let number = waiting & ((1 << bits) - 1);
        (waiting, count) = (waiting >> bits, count - bits);
        Some(number as u16)
    })
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
                pack(numbers.iter().copied(), bits, &mut bytes);
                assert_eq!(unpack(&bytes, bits).take(len).collect::<Vec<_>>(), numbers, "{bits} bits");
            }
        }
    }
}
