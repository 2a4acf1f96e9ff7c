//! Fingerprints of tensors: equal bits yield equal fingerprints, on every machine.

use kolo_comm::hash::{GOLDEN_GAMMA, splitmix64};

/// Numbers that are hashed side by side, so that multiplications do not wait for one another's results.
const LANES: usize = 4;

/// Combines several fingerprints into one.
pub(crate) fn all(prints: impl IntoIterator<Item = u64>) -> u64 {
    prints.into_iter().fold(GOLDEN_GAMMA, |all, print| splitmix64(all.wrapping_add(GOLDEN_GAMMA) ^ print))
}

/// Returns a tensor's fingerprint. Every operation here is a bijection of the hash so far and of the added
/// number, so a change of a single value (a flipped bit, say) always changes the fingerprint; several
/// changes cancel with probability 2⁻⁶⁴.
pub(crate) fn print(values: &[f32]) -> u64 {
    let mut lanes: [u64; LANES] = std::array::from_fn(|lane| GOLDEN_GAMMA.wrapping_mul(lane as u64 + 1));
    let mut chunks = values.chunks_exact(2 * LANES);
    for chunk in &mut chunks {
        for (lane, pair) in lanes.iter_mut().zip(chunk.chunks_exact(2)) {
            *lane = add(*lane, u64::from(pair[0].to_bits()) | u64::from(pair[1].to_bits()) << 32);
        }
    }
    for value in chunks.remainder() {
        lanes[0] = add(lanes[0], u64::from(value.to_bits()));
    }
    all(lanes.into_iter().chain([values.len() as u64]))
}

fn add(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(GOLDEN_GAMMA).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_bit_counts_and_so_does_the_order() {
        for len in [1, 7, 8, 21] {
            let values: Vec<f32> = (0..len).map(|i| (i as f32).sin()).collect();
            let whole = print(&values);
            for index in 0..len {
                for bit in 0..32 {
                    let mut flipped = values.clone();
                    flipped[index] = f32::from_bits(flipped[index].to_bits() ^ 1 << bit);
                    assert_ne!(print(&flipped), whole, "{len} values, bit {bit} of {index}");
                }
            }
            let mut longer = values.clone();
            longer.push(0.0);
            assert_ne!(print(&longer), whole);
        }
        let values: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let swapped: Vec<f32> = (0..16).map(|i| (i ^ 8) as f32).collect();
        assert_ne!(print(&values), print(&swapped));
        assert_ne!(print(&[0.0]), print(&[-0.0]));
    }
}
