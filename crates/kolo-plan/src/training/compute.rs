//! Arithmetic of training a transformer.

/// Returns the floating-point operations of training a dense transformer: C = 6PD, two per parameter and
/// token in the forward pass and four in the backward pass (Kaplan et al. 2020, "Scaling Laws for Neural
/// Language Models", section 2.1). Attention over the sequence is left out.
pub fn training_flops(parameters: f64, tokens: f64) -> f64 {
    6.0 * parameters * tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_operations_for_each_parameter_and_token() {
        assert_eq!(training_flops(7e9, 1e12), 4.2e22);
    }
}
