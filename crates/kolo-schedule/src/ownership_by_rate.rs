//! Computes the ranks' shares of a sum for unequal links, so that the slowest is busy as briefly as possible.
//!
//! In *direct*, an all-reduce of n bytes on N ranks where rank r owns the share x carries (1 + (N−2)x)·n
//! bytes through its link in either direction: its contribution to what others own, and the sum of what it
//! owns to N−1 others. With equal shares that is 2(N−1)/N·n for every rank, and a slower link delays all
//! ranks. The minimum is n, where the rank owns nothing. Links of the rates b are busy for at most T·n if
//! each rank owns x = (T·b − 1)/(N−2), or nothing if that is negative. T is the time at which these shares
//! sum to 1.

/// Sum of the shares that [`ownership_by_rate`] returns, up to rounding: shares are thousandths.
const WHOLE: f64 = 1000.0;

/// Returns the share of a sum that each rank should own, in thousandths, for
/// [`Contributions::with_ownership`](crate::tree::Contributions::with_ownership). `rates` are the bytes per
/// second that each rank's link carries in either direction. Shares are equal for two ranks, whose links
/// carry the same for any division, and if a rate is not a positive finite number.
pub fn ownership_by_rate(rates: &[f64]) -> Vec<u32> {
    let world = rates.len();
    match seconds_a_byte(rates) {
        Some(time) => {
            // If the slowest link carries only its contribution, the others have room for more than the whole
            // sum.
            let room = |rate: &f64| (time * rate - 1.0).max(0.0);
            let all: f64 = rates.iter().map(room).sum();
            rates.iter().map(|rate| (WHOLE * room(rate) / all).round() as u32).collect()
        }
        None => vec![(WHOLE / world.max(1) as f64).round() as u32; world],
    }
}

/// Returns the ratio of the slowest link's busy time in an all-reduce owned by [`ownership_by_rate`] to its
/// busy time with equal shares; 1 if the ownership saves nothing.
pub fn slowest_share(rates: &[f64]) -> f64 {
    let (Some(time), world) = (seconds_a_byte(rates), rates.len() as f64) else { return 1.0 };
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    time * slowest / (2.0 * (world - 1.0) / world)
}

/// T: minimum time for which all links are busy, per byte of the sum.
fn seconds_a_byte(rates: &[f64]) -> Option<f64> {
    let is_rate = |rate: &f64| rate.is_finite() && *rate > 0.0;
    if rates.len() < 3 || !rates.iter().all(is_rate) {
        return None;
    }
    let mut fastest = rates.to_vec();
    fastest.sort_by(|a, b| b.total_cmp(a));
    // If the k fastest ranks own something, Σ(T·b − 1) = N − 2 over them, and each has T·b > 1. Every link
    // carries its own contribution, including the slowest.
    let (mut sum, spare) = (0.0, rates.len() as f64 - 2.0);
    let mut time = f64::INFINITY;
    for (index, rate) in fastest.iter().enumerate() {
        if time * rate <= 1.0 {
            break;
        }
        sum += rate;
        time = (spare + (index + 1) as f64) / sum;
    }
    Some(time.max(1.0 / fastest[fastest.len() - 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the time of the busiest link per byte of the sum.
    fn busiest(rates: &[f64], ownership: &[u32]) -> f64 {
        let sum: u32 = ownership.iter().sum();
        let of = |(rate, own): (&f64, &u32)| {
            (1.0 + (rates.len() as f64 - 2.0) * f64::from(*own) / f64::from(sum)) / rate
        };
        rates.iter().zip(ownership).map(of).fold(0.0, f64::max)
    }

    #[test]
    fn a_rank_with_a_tenth_of_the_rate_owns_nothing() {
        let rates = [10.0, 10.0, 10.0, 1.0];
        let ownership = ownership_by_rate(&rates);
        assert_eq!(ownership[3], 0);
        assert_eq!(ownership[..3], [333; 3]);
        assert!((busiest(&rates, &ownership) - 1.0).abs() < 1e-9, "its own contribution, and the sum");
        assert!((slowest_share(&rates) - 1.0 / 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_little_slower_is_a_little_less() {
        let rates = [1.0, 1.0, 1.0, 0.8];
        let ownership = ownership_by_rate(&rates);
        assert!(ownership[3] > 0 && ownership[3] < ownership[0], "{ownership:?}");
        assert!(busiest(&rates, &ownership) < busiest(&rates, &[250; 4]));
    }

    #[test]
    fn equal_links_and_two_ranks_share_equally() {
        assert_eq!(ownership_by_rate(&[3.0; 4]), [250; 4]);
        assert_eq!(ownership_by_rate(&[1.0, 10.0]), [500, 500]);
        assert_eq!(ownership_by_rate(&[1.0, f64::NAN, 1.0]), [333; 3]);
        assert_eq!(ownership_by_rate(&[0.0; 5]), [200; 5]);
        assert!(ownership_by_rate(&[]).is_empty());
        assert_eq!((slowest_share(&[3.0; 4]), slowest_share(&[1.0, 9.0])), (1.0, 1.0));
    }

    /// No other division between three ranks, in hundredths, is better.
    #[test]
    fn it_is_the_best_division() {
        for rates in [[1.0, 2.0, 4.0], [1.0, 10.0, 10.0], [9.0, 10.0, 1.0], [5.0, 4.0, 3.0]] {
            let best = busiest(&rates, &ownership_by_rate(&rates));
            for first in 0..=100u32 {
                for second in 0..=100 - first {
                    let other = busiest(&rates, &[first, second, 100 - first - second]);
                    assert!(best <= 1.01 * other, "{rates:?}: {first}, {second} takes {other}, not {best}");
                }
            }
        }
    }
}
