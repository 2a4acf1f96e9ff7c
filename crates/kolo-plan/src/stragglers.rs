//! Models the wait of many workers for the slowest in every step.

/// Number of points of the numeric integral.
const POINTS: usize = 4000;
/// Range of the integral, in standard deviations.
const REACH: f64 = 9.0;

/// Returns how many standard deviations the slowest of `workers` independent normal times lies above their
/// mean, on average: ∫ x dΦ(x)^n.
pub fn slowest_of_normals(workers: u64) -> f64 {
    let (n, width) = (workers as f64, 2.0 * REACH / POINTS as f64);
    let term = |point: usize| {
        let x = -REACH + (point as f64 + 0.5) * width;
        x * n * density(x) * normal(x).powf(n - 1.0)
    };
    width * (0..POINTS).map(term).sum::<f64>()
}

/// Returns the expected slowest of `workers` independent exponential times of mean 1: the harmonic number.
pub fn slowest_of_exponentials(workers: u64) -> f64 {
    (1..=workers).rev().map(|n| 1.0 / n as f64).sum()
}

/// Returns the average seconds per step lost to stalls, where each worker stalls for `seconds` with a
/// `probability`: d·(1 − (1 − p)^N).
pub fn waited_for_stalls(workers: u64, probability: f64, seconds: f64) -> f64 {
    seconds * (1.0 - (1.0 - probability).powf(workers as f64))
}

/// Returns the expected slowest of `workers` draws from measured times: Σ x·(F(x)^n − F(x⁻)^n) over the
/// sorted times.
pub fn slowest_of_measured(times: &[f64], workers: u64) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let (len, n) = (times.len() as f64, workers as f64);
    let below = |count: usize| (count as f64 / len).powf(n);
    times.iter().enumerate().map(|(i, time)| time * (below(i + 1) - below(i))).sum()
}

fn density(x: f64) -> f64 {
    (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// Returns the normal distribution function.
fn normal(x: f64) -> f64 {
    libm::erfc(-x / std::f64::consts::SQRT_2) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_many_lies_far_out() {
        for (workers, deviations) in
            [(1, 0.0), (2, 0.564), (4, 1.029), (8, 1.424), (16, 1.766), (64, 2.344), (1024, 3.248)]
        {
            let got = slowest_of_normals(workers);
            assert!((got - deviations).abs() < 6e-4, "{workers}: {got}");
        }
        assert!((slowest_of_exponentials(4) - 25.0 / 12.0).abs() < 1e-12);
    }

    #[test]
    fn some_of_many_workers_nearly_always_stall() {
        assert!((waited_for_stalls(1, 0.01, 2.0) - 0.02).abs() < 1e-12);
        assert!(waited_for_stalls(1000, 0.01, 2.0) > 1.9999);
    }

    #[test]
    fn measured_times_are_drawn_as_they_are() {
        let times = [3.0, 1.0, 2.0];
        assert!((slowest_of_measured(&times, 1) - 2.0).abs() < 1e-12);
        // The slower of two draws is 1 in 1 of 9 cases, 2 in 3, 3 in 5.
        assert!((slowest_of_measured(&times, 2) - 22.0 / 9.0).abs() < 1e-12);
        assert!((slowest_of_measured(&times, 10_000) - 3.0).abs() < 1e-9);
    }
}
