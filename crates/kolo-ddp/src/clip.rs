//! Clipping by the global norm (Pascanu, Mikolov & Bengio 2013, algorithm 1).

/// The sum of squares, in double precision.
///
/// Eight running sums, so that vector instructions can be used; their number is fixed, so the bits are, too.
pub(crate) fn sum_of_squares(values: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    let mut chunks = values.chunks_exact(8);
    for chunk in &mut chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += f64::from(*x) * f64::from(*x));
    }
    let rest: f64 = chunks.remainder().iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    sums.iter().sum::<f64>() + rest
}

/// What to multiply gradients by so that their norm is at most `limit`; the 10⁻⁶ is PyTorch's.
pub(crate) fn factor(norm: f64, limit: f64) -> f64 {
    (limit / (norm + 1e-6)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_and_factor() {
        let values: Vec<f32> = (1..=20).map(|x| x as f32).collect();
        assert_eq!(sum_of_squares(&values), 2870.0);
        assert_eq!(factor(0.5, 1.0), 1.0);
        assert!((factor(10.0, 1.0) - 0.1).abs() < 1e-6);
    }
}
