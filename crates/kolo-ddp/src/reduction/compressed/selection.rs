//! Which elements of a block are said: the largest ones, or some at random.

use crate::key::Key;

/// How many of `len` elements are said at this density; at least one.
pub(super) fn count(len: usize, density: f64) -> usize {
    ((len as f64 * density).ceil() as usize).clamp(usize::from(len > 0), len)
}

/// Magnitude as a whole number in the same order; what is not a number is the largest.
fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// The `k` elements of the largest magnitude, in their order; of equal ones the first.
pub(super) fn largest(values: &[f32], k: usize, chosen: &mut Vec<u16>) {
    chosen.clear();
    if k == 0 {
        return;
    }
    // By the upper bits first: only what shares them with the k-th largest has to be looked at again.
    const SHIFT: u32 = 20;
    let mut counts = [0u32; 1 << (31 - SHIFT)];
    values.iter().for_each(|value| counts[(magnitude(*value) >> SHIFT) as usize] += 1);
    let (mut above, mut bin) = (0, counts.len() - 1);
    while above + (counts[bin] as usize) < k {
        above += counts[bin] as usize;
        bin -= 1;
    }
    let is_candidate = |magnitude: &u32| (magnitude >> SHIFT) as usize == bin;
    let mut candidates: Vec<u32> =
        values.iter().map(|value| magnitude(*value)).filter(is_candidate).collect();
    let (_, threshold, _) = candidates.select_nth_unstable_by(k - above - 1, |a, b| b.cmp(a));
    let threshold = *threshold;
    let larger = values.iter().filter(|value| magnitude(**value) > threshold).count();
    let mut equal = k - larger;
    for (i, value) in values.iter().enumerate() {
        let magnitude = magnitude(*value);
        if magnitude > threshold {
            chosen.push(i as u16);
        } else if magnitude == threshold && equal > 0 {
            equal -= 1;
            chosen.push(i as u16);
        }
    }
}

/// `k` of `len` elements, every set of them equally likely, in their order.
pub(super) fn random(key: Key, len: usize, k: usize, chosen: &mut Vec<u16>) {
    // Draws the smaller part, until it has so many different ones.
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
        // Bits of the last word that are no elements.
        let unused = marked.len() * 64 - len;
        marked.last_mut().into_iter().for_each(|word| *word = *word << unused >> unused);
    }
    chosen.clear();
    // Bit by bit of those that are set, which are few of many.
    for (first, mut word) in (0..len).step_by(64).zip(marked) {
        while word != 0 {
            chosen.push((first + word.trailing_zeros() as usize) as u16);
            word &= word - 1;
        }
    }
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
    fn something_is_said_of_everything() {
        assert_eq!([count(0, 0.1), count(1, 0.1), count(100, 0.011), count(5, 1.0)], [0, 1, 2, 5]);
    }
}
