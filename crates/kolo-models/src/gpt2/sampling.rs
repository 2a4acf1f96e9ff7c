//! The choice of the next token from a model's scores.

use kolo_burn_train::softmax;
use kolo_recipe::Error;

/// Settings by which the next token is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divisor of the scores; below 1 it makes likely tokens likelier. 0 always takes the likeliest.
    pub temperature: f64,
    /// Number of the likeliest tokens from which one is drawn; `None`: all.
    pub top_k: Option<usize>,
    /// Probability of the likeliest tokens from which one is drawn: the fewest that have it together
    /// (Holtzman et al. 2020, [arXiv:1904.09751](https://arxiv.org/abs/1904.09751), "nucleus sampling"). 1:
    /// all.
    pub top_p: f64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Sampling {
    /// Refuses settings by which no token can be drawn, by their names on the command line.
    ///
    /// # Errors
    ///
    /// The first such setting.
    pub fn check(&self) -> Result<(), Error> {
        let refused = |option, value: &dyn ToString, problem: &str| {
            Err(Error::setting(option, value.to_string(), format!("it must be {problem}")))
        };
        let Sampling { temperature, top_k, top_p, .. } = *self;
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return refused("--temperature", &temperature, "at least 0, and finite");
        }
        if top_k == Some(0) {
            return refused("--top-k", &0, "at least 1");
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return refused("--top-p", &top_p, "greater than 0 and at most 1");
        }
        Ok(())
    }

    /// Returns the token that `draw`, from 0 to below 1, selects. Of two that are equally likely, the smaller
    /// one comes first. `top_p` applies to the tokens that `top_k` leaves.
    pub(super) fn choose(&self, scores: &[f32], draw: f64) -> usize {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let kept = if self.temperature == 0.0 { 1 } else { self.top_k.unwrap_or(order.len()) };
        order.truncate(kept.max(1));
        let largest = scores[order[0]];
        // A quotient may overflow; a difference of 0 stays 0.
        let scaled = |token: &usize| (f64::from(scores[*token] - largest) / self.temperature) as f32;
        let scaled: Vec<f32> = match order.len() {
            1 => vec![0.0],
            _ => order.iter().map(scaled).collect(),
        };
        let probabilities = softmax(&scaled);
        let mut kept_share = 0.0;
        let kept = probabilities.iter().position(|probability| {
            kept_share += probability;
            kept_share >= self.top_p
        });
        let kept = kept.map_or(order.len(), |last| last + 1);
        let total: f64 = probabilities[..kept].iter().sum();
        let mut left = draw * total;
        let chosen = probabilities[..kept].iter().position(|probability| {
            left -= probability;
            left < 0.0
        });
        order[chosen.unwrap_or(kept - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token `i` has the probability `SHARES[i]`.
    const SHARES: [f64; 4] = [0.1, 0.4, 0.2, 0.3];

    fn chosen(sampling: Sampling) -> [usize; 10] {
        let scores = SHARES.map(|share| share.ln() as f32 + 5.0);
        std::array::from_fn(|draw| sampling.choose(&scores, draw as f64 / 10.0 + 0.05))
    }

    #[test]
    fn what_cannot_be_drawn_is_refused_in_a_sentence() {
        let usual = Sampling { temperature: 0.0, top_k: None, top_p: 1.0, seed: 0 };
        usual.check().unwrap();
        for (wrong, words) in [
            (
                Sampling { temperature: -0.5, ..usual },
                "--temperature -0.5: it must be at least 0, and finite",
            ),
            (
                Sampling { temperature: f64::NAN, ..usual },
                "--temperature NaN: it must be at least 0, and finite",
            ),
            (Sampling { top_k: Some(0), ..usual }, "--top-k 0: it must be at least 1"),
            (Sampling { top_p: 0.0, ..usual }, "--top-p 0: it must be greater than 0 and at most 1"),
            (Sampling { top_p: 1.5, ..usual }, "--top-p 1.5: it must be greater than 0 and at most 1"),
        ] {
            assert_eq!(wrong.check().unwrap_err().to_string(), words);
        }
    }

    #[test]
    fn draws_have_the_shares_of_the_kept_tokens() {
        let all = Sampling { temperature: 1.0, top_k: None, top_p: 1.0, seed: 0 };
        assert_eq!(chosen(all), [1, 1, 1, 1, 3, 3, 3, 2, 2, 0]);
        // 4 : 3 of seven.
        let two = [1, 1, 1, 1, 1, 1, 3, 3, 3, 3];
        assert_eq!(chosen(Sampling { top_k: Some(2), ..all }), two);
        assert_eq!(chosen(Sampling { top_p: 0.6, ..all }), two);
        assert_eq!(chosen(Sampling { top_k: Some(9), top_p: 0.95, ..all }), chosen(all));
        // The shares are squared: 16 : 9 : 4 : 1 of thirty.
        assert_eq!(chosen(Sampling { temperature: 0.5, ..all }), [1, 1, 1, 1, 1, 3, 3, 3, 2, 2]);
        for one in [Sampling { temperature: 0.0, ..all }, Sampling { top_k: Some(1), ..all }] {
            assert_eq!(chosen(one), [1; 10]);
        }
        assert_eq!(chosen(Sampling { top_p: 1e-9, ..all }), [1; 10]);
        assert_eq!(chosen(Sampling { temperature: 1e-300, ..all }), [1; 10]);
        assert_eq!(Sampling { temperature: 0.0, ..all }.choose(&[1.0, 2.0, 2.0], 0.9), 1);
    }
}
