//! Computes the best model size for an amount of arithmetic.

use serde::Serialize;

/// Loss by parameters N and training tokens D: L(N, D) = E + A/N^α + B/D^β (Hoffmann et al. 2022, "Training
/// Compute-Optimal Large Language Models", equation 2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalingLaw {
    /// Name of the fit's authors.
    pub name: &'static str,
    /// Publication.
    pub source: &'static str,
    /// E: lower bound of the loss of any model.
    pub entropy: f64,
    /// A.
    pub parameter_factor: f64,
    /// B.
    pub token_factor: f64,
    /// α.
    pub parameter_exponent: f64,
    /// β.
    pub token_exponent: f64,
}

/// Published fits.
pub static SCALING_LAWS: &[ScalingLaw] = &[
    ScalingLaw {
        name: "hoffmann",
        source: "Hoffmann et al. 2022, section D.3",
        entropy: 1.69,
        parameter_factor: 406.4,
        token_factor: 410.7,
        parameter_exponent: 0.34,
        token_exponent: 0.28,
    },
    ScalingLaw {
        name: "besiroglu",
        source: "Besiroglu et al. 2024, \"Chinchilla Scaling: A replication attempt\"",
        entropy: 1.8172,
        parameter_factor: 482.01,
        token_factor: 2085.43,
        parameter_exponent: 0.3478,
        token_exponent: 0.3658,
    },
];

/// Model with the lowest loss for an amount of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Optimum {
    /// Number of parameters.
    pub parameters: f64,
    /// Number of training tokens.
    pub tokens: f64,
    /// Predicted loss, in nats per token.
    pub loss: f64,
}

impl ScalingLaw {
    /// Returns the loss of a model with `parameters` after `tokens`, in nats per token.
    pub fn loss(&self, parameters: f64, tokens: f64) -> f64 {
        self.entropy
            + self.parameter_factor / parameters.powf(self.parameter_exponent)
            + self.token_factor / tokens.powf(self.token_exponent)
    }

    /// Returns the model with the lowest loss for C = 6ND: N = G·(C/6)^a, D = (C/6)^b/G, a = β/(α+β), b =
    /// α/(α+β), G = (αA/βB)^(1/(α+β)) (Hoffmann et al. 2022, equation 4).
    pub fn optimum(&self, flops: f64) -> Optimum {
        let (alpha, beta) = (self.parameter_exponent, self.token_exponent);
        let sum = alpha + beta;
        let g = (alpha * self.parameter_factor / (beta * self.token_factor)).powf(1.0 / sum);
        let parameters = g * (flops / 6.0).powf(beta / sum);
        let tokens = flops / 6.0 / parameters;
        Optimum { parameters, tokens, loss: self.loss(parameters, tokens) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_model_of_the_same_arithmetic_has_less_loss() {
        for law in SCALING_LAWS {
            for flops in [1e19, 5.76e23, 1e26] {
                let best = law.optimum(flops);
                assert!((6.0 * best.parameters * best.tokens / flops - 1.0).abs() < 1e-12);
                for times in [0.5, 0.9, 1.1, 2.0] {
                    let other = law.loss(best.parameters * times, best.tokens / times);
                    assert!(other > best.loss, "{}: {times} times the parameters", law.name);
                }
            }
        }
    }

    /// Chinchilla's arithmetic. The corrected fit gives its 70 billion parameters and 1.4 trillion tokens, 20
    /// tokens per parameter; the published fit gives a smaller model and more tokens.
    #[test]
    fn the_corrected_fit_agrees_with_twenty_tokens_a_parameter() {
        let [hoffmann, besiroglu] = [0, 1].map(|law: usize| SCALING_LAWS[law].optimum(5.88e23));
        let ratio = |optimum: Optimum| optimum.tokens / optimum.parameters;
        assert!((15.0..25.0).contains(&ratio(besiroglu)), "{besiroglu:?}");
        assert!(ratio(hoffmann) > 60.0, "{hoffmann:?}");
    }
}
