//! Arithmetic of training a transformer.

/// Returns the floating-point operations of training a dense transformer: C = 6PD, two per parameter and
/// token in the forward pass and four in the backward pass (Kaplan et al. 2020, "Scaling Laws for Neural
/// Language Models", section 2.1). Attention over the sequence is left out.
pub fn training_flops(parameters: f64, tokens: f64) -> f64 {
    6.0 * parameters * tokens
}

/// Dimensions that determine the arithmetic of a transformer, including attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transformer {
    /// Number of parameters.
    pub parameters: f64,
    /// Number of layers.
    pub layers: f64,
    /// Number of elements of a token's vector in each layer.
    pub width: f64,
    /// Number of tokens that attend to one another.
    pub sequence: f64,
}

impl Transformer {
    /// Returns the floating-point operations of training on one token: 6P + 12·layers·width·sequence
    /// (Chowdhery et al. 2022, "PaLM", appendix B).
    pub fn flops_per_token(&self) -> f64 {
        6.0 * self.parameters + 12.0 * self.layers * self.width * self.sequence
    }

    /// Returns the share of a worker's peak that the model uses (MFU; the same appendix), from one worker's
    /// `tokens_per_second` and its `peak` in FLOP/s.
    pub fn utilisation(&self, tokens_per_second: f64, peak: f64) -> f64 {
        tokens_per_second * self.flops_per_token() / peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_operations_for_each_parameter_and_token() {
        assert_eq!(training_flops(7e9, 1e12), 4.2e22);
    }

    /// Llama 3 405B: 430 of 989 TFLOP/s on 8,192 GPUs are 43 % (Dubey et al. 2024, table 4).
    #[test]
    fn utilisation_is_the_models_share_of_the_peak() {
        let model = Transformer { parameters: 405e9, layers: 126.0, width: 16384.0, sequence: 8192.0 };
        let tokens = 430e12 / model.flops_per_token();
        assert!((model.utilisation(tokens, 989e12) - 0.43).abs() < 0.005);
        assert!(model.flops_per_token() / (6.0 * 405e9) > 1.05, "attention counts");
    }
}
