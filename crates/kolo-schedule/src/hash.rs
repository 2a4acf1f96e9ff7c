//! Hashes for agreement between workers: they are the same on every machine and in every build.

/// Returns the 64-bit FNV-1a hash (Fowler, Noll & Vo).
pub fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Increment of SplitMix64's state between outputs (Steele, Lea & Flood 2014).
pub const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns SplitMix64's output for a state, Stafford's variant 13: close inputs give distant outputs.
#[inline]
pub fn splitmix64(mut state: u64) -> u64 {
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
