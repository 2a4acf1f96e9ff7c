//! Models the share of a worker's speed that remains among others.

use std::str::FromStr;

/// Model of the share of a worker's speed that remains among a number of workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Efficiency {
    /// Constant share, for example one that was measured or predicted for that number.
    Constant(f64),
    /// 1 / (1 + c·√K) for K workers: a rule of thumb without a model behind it.
    SquareRoot {
        /// c.
        factor: f64,
    },
    /// 1 / (1 + c·K): each worker computes 1/K of a step; communication takes the same time for any number.
    ConstantCommunication {
        /// c: communication time of a step divided by the time in which one worker computes all of it.
        ratio: f64,
    },
}

impl Efficiency {
    /// Returns constant communication with this `efficiency` at this number of workers.
    pub fn through(workers: f64, efficiency: f64) -> Self {
        Efficiency::ConstantCommunication { ratio: (1.0 / efficiency - 1.0) / workers }
    }

    /// Returns the share that remains with this number of workers.
    pub fn of(&self, workers: f64) -> f64 {
        match self {
            Efficiency::Constant(share) => *share,
            Efficiency::SquareRoot { factor } => 1.0 / (1.0 + factor * workers.sqrt()),
            Efficiency::ConstantCommunication { ratio } => 1.0 / (1.0 + ratio * workers),
        }
    }
}

/// Text that is not an efficiency.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no efficiency; give a share (0.9), a share of some workers with communication that takes \
     the same time for any number (0.6@256), or the factor of 1/(1 + c·√K) (sqrt:0.04)"
)]
pub struct EfficiencyError {
    text: String,
}

/// Parses `0.9`, `0.6@256` or `sqrt:0.04`, one form per kind.
impl FromStr for Efficiency {
    type Err = EfficiencyError;

    fn from_str(text: &str) -> Result<Self, EfficiencyError> {
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let share = |text: &str| number(text).filter(|share| (f64::MIN_POSITIVE..=1.0).contains(share));
        let read = if let Some(factor) = text.strip_prefix("sqrt:") {
            number(factor).filter(|factor| *factor >= 0.0).map(|factor| Efficiency::SquareRoot { factor })
        } else if let Some((at, workers)) = text.split_once('@') {
            let workers = number(workers).filter(|workers| *workers >= 1.0);
            share(at).zip(workers).map(|(share, workers)| Efficiency::through(workers, share))
        } else {
            share(text).map(Efficiency::Constant)
        };
        read.ok_or_else(|| EfficiencyError { text: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_parses_and_nonsense_is_refused() {
        assert_eq!("0.9".parse(), Ok(Efficiency::Constant(0.9)));
        assert_eq!("sqrt:0.04".parse(), Ok(Efficiency::SquareRoot { factor: 0.04 }));
        assert_eq!("0.6@256".parse(), Ok(Efficiency::through(256.0, 0.6)));
        for text in ["", "0", "1.5", "-0.1", "nan", "sqrt:", "sqrt:-1", "0.6@0", "0.6@", "@4", "sqrt:inf"] {
            let error = text.parse::<Efficiency>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("`{text}` is no efficiency; give")), "{error}");
        }
    }

    #[test]
    fn constant_communication_fits_the_measurement() {
        let efficiency = Efficiency::through(256.0, 0.6);
        let percent = |workers| (efficiency.of(workers) * 1000.0).round() / 10.0;
        assert_eq!([256.0, 1024.0, 4096.0].map(percent), [60.0, 27.3, 8.6]);
    }
}
