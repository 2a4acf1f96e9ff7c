//! Selection of the elements of a block that are sent: the largest ones, or random ones.

use std::cmp::Ordering;

use kolo_optim::vectorized;
use kolo_sampler::key::Key;

/// Number of sent elements among `len` at this density; at least one.
pub(super) fn count(len: usize, density: f64) -> usize {
    ((len as f64 * density).ceil() as usize).clamp(usize::from(len > 0), len)
}

/// Returns the magnitude as an integer with the same order; NaN is the largest.
#[inline(always)]
fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// Selects the `k` elements of the largest magnitude, in their order; of equal ones the first.
pub(super) fn largest(values: &[f32], k: usize, chosen: &mut Vec<u16>) {
    chosen.clear();
    if k == 0 {
        return;
    }
    // If k is small, only elements above a bound that a sample yields are considered.
    not_below(values, likely_bound(values, k), chosen);
    if chosen.len() < k {
        not_below(values, 0, chosen);
    }
    let of = |i: &u16| magnitude(values[usize::from(*i)]);
    let mut magnitudes: Vec<u32> = chosen.iter().map(of).collect();
    let (larger, threshold, _) = magnitudes.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
    let threshold = *threshold;
    let mut equal = k - larger.iter().filter(|magnitude| **magnitude > threshold).count();
    chosen.retain(|i| match of(i).cmp(&threshold) {
        Ordering::Greater => true,
        Ordering::Equal if equal > 0 => {
            equal -= 1;
            true
        }
        _ => false,
    });
}

/// Returns a magnitude that probably more than `k` of these elements reach, but not many more, from a sample
/// of them.
fn likely_bound(values: &[f32], k: usize) -> u32 {
    const SAMPLE: usize = 256;
    let mut sample: Vec<u32> =
        values.iter().step_by(values.len().div_ceil(SAMPLE)).map(|value| magnitude(*value)).collect();
    // The expected number of the sample's elements among the k largest, and a margin for bad luck.
    let place = sample.len() * k / values.len();
    let place = place + 3 * place.isqrt() + 4;
    match place < sample.len() {
        true => *sample.select_nth_unstable_by(place, |a, b| b.cmp(a)).1,
        false => 0,
    }
}

/// Selects the elements whose magnitude is at least `bound`, in their order.
fn not_below(values: &[f32], bound: u32, chosen: &mut Vec<u16>) {
    chosen.clear();
    vectorized(
        #[inline(always)]
        || {
            let (whole, rest) = values.as_chunks::<WORD>();
            for (n, values) in whole.iter().enumerate() {
                push_set(word(values, bound), n * WORD, chosen);
            }
            push_set(word(rest, bound), whole.len() * WORD, chosen);
        },
    );
}

/// Elements that are compared at a time.
const WORD: usize = 32;

/// Returns a bit for each of these elements: 1 if its magnitude is at least `bound`.
#[inline(always)]
fn word(values: &[f32], bound: u32) -> u64 {
    let bit = |(i, value): (usize, &f32)| u32::from(magnitude(*value) >= bound) << i;
    u64::from(values.iter().enumerate().map(bit).fold(0, |word, bit| word | bit))
}

/// Appends the elements from `first` on whose bits are set.
#[inline(always)]
fn push_set(mut word: u64, first: usize, chosen: &mut Vec<u16>) {
    while word != 0 {
        chosen.push((first + word.trailing_zeros() as usize) as u16);
        word &= word - 1;
    }
}

/// Selects `k` of `len` elements, every set of them equally likely, in their order.
pub(super) fn random(key: Key, len: usize, k: usize, chosen: &mut Vec<u16>) {
    // Draws the smaller part, until it has that many different ones.
    let (draws, inverted) = if 2 * k <= len { (k, false) } else { (len - k, true) };
    let mut marked = vec![0u64; len.div_ceil(64)];
    let (mut count, mut n) = (0, 0);
    while count < draws {
        let element = key.with(n).below(len);
        let (word, bit) = (&mut marked[element / 64], 1 << (element % 64));
        count += usize::from(*word & bit == 0);
        *word |= bit;
        n += 1;
    }
    if inverted {
        marked.iter_mut().for_each(|word| *word = !*word);
        // Clears the unused bits of the last word.
        let unused = marked.len() * 64 - len;
        marked.last_mut().into_iter().for_each(|word| *word = *word << unused >> unused);
    }
    chosen.clear();
    (0..len).step_by(64).zip(marked).for_each(|(first, word)| push_set(word, first, chosen));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_those_a_sort_finds() {
        for len in [1usize, 2, 63, 1000] {
            // Many are equal.
            let values: Vec<f32> = (0..len).map(|i| ((i * 7_919 % 37) as f32 - 18.0) * 0.3).collect();
            for k in [1, len / 3, len] {
                let mut chosen = Vec::new();
                largest(&values, k, &mut chosen);
                let mut sorted: Vec<usize> = (0..len).collect();
                sorted.sort_by(|a, b| values[*b].abs().total_cmp(&values[*a].abs()));
                let mut expected = sorted[..k].to_vec();
                expected.sort_unstable();
                assert!(chosen.iter().map(|i| usize::from(*i)).eq(expected), "{k} of {len}");
            }
        }
        let mut chosen = Vec::new();
        largest(&[1.0, f32::NAN, f32::INFINITY], 1, &mut chosen);
        assert_eq!(chosen, [1], "what is not a number is not hidden");
    }

    #[test]
    fn each_element_is_chosen_as_often_as_the_others() {
        for k in [3, 7] {
            let (mut counts, mut chosen) = ([0; 10], Vec::new());
            for n in 0..20_000 {
                random(Key::new(n), 10, k, &mut chosen);
                assert!(chosen.len() == k && chosen.is_sorted_by(|a, b| a < b), "{chosen:?}");
                chosen.iter().for_each(|i| counts[usize::from(*i)] += 1);
            }
            let expected = 2_000 * k as i32;
            assert!(counts.iter().all(|count: &i32| (count - expected).abs() < 400), "{counts:?}");
        }
    }

    #[test]
    fn as_many_are_chosen_as_are_wanted_whatever_the_length() {
        let mut chosen = Vec::new();
        for len in [1usize, 63, 64, 65, 128, 1000] {
            for k in [1, len / 3, len / 2, len - 1, len] {
                random(Key::new(7), len, k, &mut chosen);
                let in_order = chosen.is_sorted_by(|a, b| a < b);
                assert!(in_order && chosen.iter().all(|i| usize::from(*i) < len), "{k} of {len}: {chosen:?}");
                assert_eq!(chosen.len(), k, "of {len}");
            }
        }
    }

    #[test]
    fn at_least_one_element_is_sent() {
        assert_eq!([count(0, 0.1), count(1, 0.1), count(100, 0.011), count(5, 1.0)], [0, 1, 2, 5]);
    }
}
