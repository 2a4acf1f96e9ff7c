//! The arithmetic of training a transformer.

/// Floating-point operations of training a dense transformer of so many parameters on so many tokens: C =
/// 6PD, two for each parameter and token in the forward pass and four in the backward pass (Kaplan et al.
/// 2020, "Scaling Laws for Neural Language Models", section 2.1). Attention over the sequence is left out.
pub fn training_flops(parameters: f64, tokens: f64) -> f64 {
    6.0 * parameters * tokens
}

/// What the arithmetic of a transformer depends on, attention included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transformer {
    /// Parameters.
    pub parameters: f64,
    /// Layers.
    pub layers: f64,
    /// Elements of a token's vector in each layer.
    pub width: f64,
    /// Tokens that attend to one another.
    pub sequence: f64,
}

impl Transformer {
    /// Floating-point operations of training by one token: 6P + 12·layers·width·sequence (Chowdhery et al.
    /// 2022, "PaLM", appendix B).
    pub fn flops_per_token(&self) -> f64 {
        6.0 * self.parameters + 12.0 * self.layers * self.width * self.sequence
    }

    /// The model's share of the floating-point operations that a worker could do (MFU; the same appendix):
    /// `tokens_per_second` that one worker trains by, and the `peak` of that worker in FLOP/s.
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

    /// Llama 3 405B: 430 TFLOP/s of 989 on 8,192 GPUs are 43 % (Dubey et al. 2024, table 4).
    #[test]
    fn utilisation_is_the_models_share_of_the_peak() {
        let model = Transformer { parameters: 405e9, layers: 126.0, width: 16384.0, sequence: 8192.0 };
        let tokens = 430e12 / model.flops_per_token();
        assert!((model.utilisation(tokens, 989e12) - 0.43).abs() < 0.005);
        assert!(model.flops_per_token() / (6.0 * 405e9) > 1.05, "attention counts");
    }
}
