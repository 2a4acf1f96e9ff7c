//! Computes the duration of a training.

use serde::Serialize;

use crate::training::efficiency::Efficiency;

/// Duration of a training on a number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Duration {
    /// Number of workers.
    pub workers: u64,
    /// Seconds if each worker ran at the speed of a single one.
    pub ideal: f64,
    /// Share of that speed that the workers reach together.
    pub efficiency: f64,
    /// Seconds at that share.
    pub seconds: f64,
}

impl Duration {
    /// Returns the speed relative to one worker.
    pub fn speedup(&self) -> f64 {
        self.workers as f64 * self.efficiency
    }
}

/// Returns the duration of `flops` operations for each number of workers; one worker does `flops_per_second`.
pub fn durations(
    flops: f64,
    flops_per_second: f64,
    workers: &[u64],
    efficiency: impl Fn(u64) -> Efficiency,
) -> Vec<Duration> {
    let of = |&workers: &u64| {
        let ideal = flops / flops_per_second / workers as f64;
        let efficiency = efficiency(workers).of(workers as f64);
        Duration { workers, ideal, efficiency, seconds: ideal / efficiency }
    };
    workers.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::compute::training_flops;

    const DAY: f64 = 86_400.0;

    /// Code 15.1.1 of "Data-Parallel Deep Learning": seven billion parameters, a trillion tokens, 40 % of
    /// 10^15 FLOP/s.
    #[test]
    fn seven_billion_parameters_on_a_trillion_tokens() {
        let (flops, rate) = (training_flops(7e9, 1e12), 0.4 * 1e15);
        assert_eq!(format!("{:.1}", flops / rate / DAY), "1215.3");
        let rows = durations(flops, rate, &[8, 64, 256, 1024], |_| Efficiency::SquareRoot { factor: 0.04 });
        let lines = rows.iter().map(|row| {
            format!(
                "{:.2} {:.1} {:.2} {:.1}",
                row.ideal / DAY,
                row.efficiency * 100.0,
                row.seconds / DAY,
                row.speedup()
            )
        });
        let expected = [
            "151.91 89.8 169.10 7.2", "18.99 75.8 25.07 48.5", "4.75 61.0 7.79 156.1", "1.19 43.9 2.71 449.1",
        ];
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }

    /// Exercise 15.1.2 of the same text.
    #[test]
    fn seventy_billion_parameters_on_two_trillion_tokens() {
        let (flops, rate, workers) = (training_flops(70e9, 2e12), 0.4 * 1e15, [256, 1024, 4096]);
        assert_eq!(format!("{:.0}", flops / rate / DAY), "24306");
        let days = |efficiency: Efficiency| {
            let rows = durations(flops, rate, &workers, |_| efficiency);
            rows.iter().map(|row| format!("{:.1}", row.seconds / DAY)).collect::<Vec<_>>()
        };
        assert_eq!(days(Efficiency::SquareRoot { factor: 0.04 }), ["155.7", "54.1", "21.1"]);
        // With constant communication, 4,096 workers are hardly faster than 1,024.
        assert_eq!(days(Efficiency::through(256.0, 0.6)), ["158.2", "87.0", "69.2"]);
    }
}
