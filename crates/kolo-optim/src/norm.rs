//! Euclidean norms with the same bits on every machine.

/// Returns the sum of squares in double precision.
///
/// Eight running sums allow vector instructions; their fixed number fixes the bits.
pub fn sum_of_squares(values: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    let mut chunks = values.chunks_exact(8);
    for chunk in &mut chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += f64::from(*x) * f64::from(*x));
    }
    let rest: f64 = chunks.remainder().iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_squares_of_all_values() {
        let values: Vec<f32> = (1..=20).map(|x| x as f32).collect();
        assert_eq!(sum_of_squares(&values), 2870.0);
    }
}
