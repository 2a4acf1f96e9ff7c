//! How much of a worker's speed is left beside others.

/// The share of a worker's speed that is left when so many work together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Efficiency {
    /// Always the same share, as where it has been measured or predicted for that number.
    Constant(f64),
    /// 1 / (1 + c·√K) for K workers: a rule of thumb without a model behind it.
    SquareRoot {
        /// c.
        factor: f64,
    },
    /// 1 / (1 + c·K): each worker computes 1/K of a step, and communication takes the same time for any
    /// number.
    ConstantCommunication {
        /// c: the communication of a step by the computation of one worker that does all of it.
        ratio: f64,
    },
}

impl Efficiency {
    /// Constant communication that leaves this share of the speed with so many workers.
    pub fn through(workers: f64, efficiency: f64) -> Self {
        Efficiency::ConstantCommunication { ratio: (1.0 / efficiency - 1.0) / workers }
    }

    /// The share that is left with so many workers.
    pub fn of(&self, workers: f64) -> f64 {
        match self {
            Efficiency::Constant(share) => *share,
            Efficiency::SquareRoot { factor } => 1.0 / (1.0 + factor * workers.sqrt()),
            Efficiency::ConstantCommunication { ratio } => 1.0 / (1.0 + ratio * workers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_communication_goes_through_what_was_measured() {
        let efficiency = Efficiency::through(256.0, 0.6);
        let percent = |workers| (efficiency.of(workers) * 1000.0).round() / 10.0;
        assert_eq!([256.0, 1024.0, 4096.0].map(percent), [60.0, 27.3, 8.6]);
    }
}
