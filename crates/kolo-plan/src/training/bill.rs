//! Computes the price of a training.

use serde::Serialize;

/// Prices of workers and their energy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Watts that a worker draws.
    pub watts: f64,
    /// Watts of the whole building per watt of a worker (power usage effectiveness).
    pub building: f64,
    /// Price of a kilowatt-hour.
    pub kilowatt_hour: f64,
    /// Price of a worker per hour.
    pub worker_hour: f64,
}

/// Costs of a training, in the unit of its [`Prices`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bill {
    /// Energy, in kilowatt-hours.
    pub energy: f64,
    /// Price of the energy.
    pub energy_price: f64,
    /// Price of the workers.
    pub workers_price: f64,
}

impl Bill {
    /// Returns the bill for `workers` over `seconds`.
    pub fn of(workers: u64, seconds: f64, prices: &Prices) -> Bill {
        let hours = workers as f64 * seconds / 3600.0;
        let energy = hours * prices.watts * prices.building / 1000.0;
        Bill {
            energy,
            energy_price: energy * prices.kilowatt_hour,
            workers_price: hours * prices.worker_hour,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_and_their_energy_are_paid_by_the_hour() {
        let prices = Prices { watts: 700.0, building: 1.5, kilowatt_hour: 0.1, worker_hour: 2.0 };
        let bill = Bill::of(10, 7200.0, &prices);
        assert!((bill.energy - 21.0).abs() < 1e-9 && (bill.energy_price - 2.1).abs() < 1e-9);
        assert_eq!(bill.workers_price, 40.0);
    }
}
