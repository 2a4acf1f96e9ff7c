//! The check of runs that average their weights.

use kolo_ddp::table::Value;
use kolo_run_folder::units::{counted, percent};

use super::Recipe;
use crate::error::Error;

const EMA: &str = "--ema";

/// Share of the first weights in the last average from which a run is warned.
const MOST_OF_THE_START: f64 = 0.05;

impl Recipe {
    /// Refuses a decay that is not between 0 and 1, and weights of which there are several, or that other
    /// processes hold.
    pub(super) fn check_ema(&self) -> Result<(), Error> {
        let Some(decay) = self.ema else { return Ok(()) };
        let refused = |problem: &str| Err(Error::setting(EMA, Value::Number(decay), problem));
        if !(decay > 0.0 && (decay as f32) < 1.0) {
            return refused("it must be greater than 0 and below 1 in single precision, as 0.9999 is");
        }
        if self.sync.mode.traits().rounds.is_some() || self.sync.mode.traits().staleness_bound.is_some() {
            return refused("each island, or a server, steps weights of its own; take --sync every-step");
        }
        Ok(())
    }

    /// Warns if the average of a run of so many steps is mostly its first weights.
    pub(super) fn ema_remembers_the_start(&self, steps: u64) -> Option<String> {
        let decay = self.ema.filter(|_| !self.ema_warmup)?;
        let left = libm::pow(decay, steps as f64);
        (left > MOST_OF_THE_START).then(|| {
            let shorter = match steps {
                ..=20 => String::new(),
                // The first weights then count e⁻¹⁰.
                _ => format!(", or a decay of {:.3} or less", 1.0 - 10.0 / steps as f64),
            };
            format!(
                "--ema {decay}: after the {} of this run {} of the average are still the weights before training, and the average \
                 is what Kolo evaluates and exports; give --ema-warmup{shorter}",
                counted(steps, "step"),
                percent(left)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_that_is_mostly_the_first_weights_is_reported() {
        let long = Recipe { ema: Some(0.9999), ..Recipe::default() };
        // 0.9999 to the power of 1,256 is 0.8819.
        let words = long.ema_remembers_the_start(1256).unwrap();
        assert!(
            words.starts_with("--ema 0.9999: after the 1256 steps of this run 88.2 % of the average"),
            "{words}"
        );
        assert!(words.ends_with("give --ema-warmup, or a decay of 0.992 or less"), "{words}");
        assert!(long.ema_remembers_the_start(15).unwrap().ends_with("give --ema-warmup"));
        assert_eq!(long.ema_remembers_the_start(50_000), None);
        let shorter = Recipe { ema: Some(0.992), ..Recipe::default() };
        assert_eq!(shorter.ema_remembers_the_start(1256), None);
        let rising = Recipe { ema_warmup: true, ..long };
        assert_eq!(rising.ema_remembers_the_start(15), None);
        assert_eq!(Recipe::default().ema_remembers_the_start(15), None);
    }
}
