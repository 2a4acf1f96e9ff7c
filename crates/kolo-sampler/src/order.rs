//! The order of an epoch's samples, as a function of the epoch's key.

use std::ops::Range;

use crate::key::Key;

/// Samples up to which the order is a list, of 4 bytes a sample. A list of 200 million took 1.6 GB on every
/// worker, and half a minute before the first step.
const LISTED: usize = 1 << 22;

/// The samples `0..n` in an order in which each comes once.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Shuffled after Fisher and Yates, as in Knuth, The Art of Computer Programming, 3.4.2, algorithm P.
    Listed(Vec<u32>),
    /// Computed place by place.
    Computed(Permutation),
}

impl Order {
    /// The order of `samples` samples that follows from `key`.
    pub(crate) fn new(samples: usize, key: Key) -> Self {
        if samples > LISTED {
            return Order::Computed(Permutation::new(samples, key));
        }
        let mut order: Vec<u32> = (0..samples as u32).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, key.with(last as u64).below(last + 1));
        }
        Order::Listed(order)
    }

    /// The samples at these places.
    pub(crate) fn at(&self, places: Range<usize>) -> Vec<usize> {
        match self {
            Order::Listed(order) => order[places].iter().map(|sample| *sample as usize).collect(),
            Order::Computed(permutation) => places.map(|place| permutation.at(place)).collect(),
        }
    }
}

/// Rounds of the network; an even number, so that the halves end where they began. Four are enough to make
/// it indistinguishable from a random permutation with few queries (Luby and Rackoff 1988).
const ROUNDS: u64 = 8;

/// A permutation of `0..n` of which any value is computed by itself: a Feistel network over the least number
/// of bits that count to `n` (Luby and Rackoff, "How to construct pseudorandom permutations from
/// pseudorandom functions", SIAM Journal on Computing 17, 1988). A result beyond `n` goes through the
/// network again until it is below `n` ("cycle walking": Black and Rogaway, "Ciphers with arbitrary finite
/// domains", CT-RSA 2002, section 4). Less than two passes on average.
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    len: u64,
    /// Bits of the left and the right half.
    bits: [u32; 2],
    key: Key,
}

impl Permutation {
    fn new(len: usize, key: Key) -> Self {
        let len = len as u64;
        // At least one bit for each half.
        let all = (u64::BITS - len.saturating_sub(1).leading_zeros()).max(2);
        Permutation { len, bits: [all / 2, all - all / 2], key }
    }

    /// The value at a place, both below `n`.
    fn at(&self, place: usize) -> usize {
        let mut value = self.pass(place as u64);
        while value >= self.len {
            value = self.pass(value);
        }
        value as usize
    }

    fn pass(&self, value: u64) -> u64 {
        let [mut left_bits, mut right_bits] = self.bits;
        let (mut left, mut right) = (value >> right_bits, value & low(right_bits));
        for round in 0..ROUNDS {
            let mixed = left ^ (self.key.with(round).with(right).bits() & low(left_bits));
            (left, right) = (right, mixed);
            (left_bits, right_bits) = (right_bits, left_bits);
        }
        left << right_bits | right
    }
}

/// A mask of the lowest `bits` bits.
fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u64) -> Key {
        Key::new(seed).with_str("order")
    }

    #[test]
    fn a_computed_order_has_every_sample_once() {
        for len in (1..70).chain([255, 256, 257, 10_000, 65_536, 65_537]) {
            let permutation = Permutation::new(len, key(len as u64));
            let mut all: Vec<usize> = (0..len).map(|place| permutation.at(place)).collect();
            assert!(len < 20 || !all.is_sorted(), "{len}");
            all.sort_unstable();
            assert!(all.into_iter().eq(0..len), "{len}");
        }
    }

    /// Places and samples are independent: the samples of each tenth of the places are spread evenly,
    /// neighbors are as far apart as two random ones, and another key yields another order.
    #[test]
    fn a_computed_order_is_well_mixed() {
        const LEN: usize = 100_000;
        let permutation = Permutation::new(LEN, key(1));
        let all: Vec<usize> = (0..LEN).map(|place| permutation.at(place)).collect();
        for tenth in all.chunks(LEN / 10) {
            let mut counts = [0; 10];
            tenth.iter().for_each(|sample| counts[sample * 10 / LEN] += 1);
            // 1,000 are expected, with a deviation of 28.
            assert!(counts.iter().all(|count| (860..1140).contains(count)), "{counts:?}");
        }
        let apart = all.windows(2).map(|pair| pair[0].abs_diff(pair[1]) as f64).sum::<f64>() / LEN as f64;
        assert!((apart / LEN as f64 - 1.0 / 3.0).abs() < 0.01, "{apart}");
        let other = Permutation::new(LEN, key(2));
        let same = (0..LEN).filter(|place| other.at(*place) == all[*place]).count();
        assert!(same < 12, "{same}");
    }

    #[test]
    fn many_samples_cost_no_memory_and_few_are_listed() {
        assert!(matches!(Order::new(LISTED, key(3)), Order::Listed(order) if order.len() == LISTED));
        let order = Order::new(1 << 40, key(3));
        assert!(matches!(order, Order::Computed(_)));
        let samples = order.at(5..9);
        assert!(samples.len() == 4 && samples.iter().all(|sample| *sample < 1 << 40), "{samples:?}");
        assert_eq!(order.at(7..8), samples[2..3]);
    }
}
