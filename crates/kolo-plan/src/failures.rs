//! Models the cost of failures for a job of many workers.

/// Failure rate of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failures {
    /// Mean time between the failures of one worker, in seconds.
    pub worker_mtbf: f64,
    /// Number of workers.
    pub workers: f64,
}

/// Costs of writing checkpoints and of restarting from one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checkpoints {
    /// Seconds for which training stops to write a checkpoint.
    pub write: f64,
    /// Seconds from a failure until all workers train again.
    pub restart: f64,
}

impl Failures {
    /// Returns the job's mean time between failures, in seconds; workers fail independently.
    pub fn job_mtbf(&self) -> f64 {
        self.worker_mtbf / self.workers
    }

    /// Returns the share of time spent on training if a job restarts from a checkpoint that is taken every
    /// `interval` seconds: 1 − C/τ − τ/2M − R/M (Young 1974, equation 1; R is the restart).
    pub fn goodput_with_restarts(&self, checkpoints: &Checkpoints, interval: f64) -> f64 {
        let mtbf = self.job_mtbf();
        let lost = checkpoints.write / interval + interval / (2.0 * mtbf) + checkpoints.restart / mtbf;
        (1.0 - lost).max(0.0)
    }

    /// Returns the share of time spent on training if the job continues without failed workers and repeats
    /// their step. Each failure costs half a step and the `recovery` seconds until the next one.
    pub fn goodput_elastic(&self, step: f64, recovery: f64) -> f64 {
        (1.0 - (step / 2.0 + recovery) / self.job_mtbf()).max(0.0)
    }
}

impl Checkpoints {
    /// Returns the interval that loses the least time: √(2CM) for a mean time between failures M (Young
    /// 1974). Daly 2006 adds terms that matter where C is not small compared with M.
    pub fn best_interval(&self, mtbf: f64) -> f64 {
        (2.0 * self.write * mtbf).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Llama 3 405B: 419 failures in 54 days on 16,384 GPUs, one in 3.1 hours (Dubey et al. 2024, 3.3.4).
    #[test]
    fn sixteen_thousand_workers_fail_every_three_hours() {
        let failures = Failures { worker_mtbf: 54.0 * 86_400.0 * 16_384.0 / 419.0, workers: 16_384.0 };
        assert!((failures.job_mtbf() / 3600.0 - 3.09).abs() < 0.01);
        let one = Failures { workers: 1.0, ..failures };
        assert!(one.job_mtbf() > 5.0 * 365.0 * 86_400.0, "a worker alone fails every five years");
    }

    #[test]
    fn no_other_interval_loses_less() {
        let failures = Failures { worker_mtbf: 1e7, workers: 1000.0 };
        let checkpoints = Checkpoints { write: 30.0, restart: 300.0 };
        let best = checkpoints.best_interval(failures.job_mtbf());
        let goodput = |interval| failures.goodput_with_restarts(&checkpoints, interval);
        assert!([0.5, 0.9, 1.1, 2.0].iter().all(|times| goodput(best * times) < goodput(best)));
        assert!(failures.goodput_elastic(1.0, 5.0) > goodput(best), "elastic jobs lose one step");
    }
}
