//! Models the wait of many workers for the slowest in every step.

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
    }
}
