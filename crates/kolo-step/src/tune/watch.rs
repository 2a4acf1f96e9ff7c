//! Watch for a change in the duration of steps since a setting was chosen.

use super::median::lower_median;
use kolo_comm::schedule::seconds::LEAST;

/// Number of steps of which the median is compared.
const WINDOW: usize = 10;
/// Factor by which the duration must grow, or shrink, to count as changed.
const CHANGED: f64 = 1.2;
/// Number of changed windows in a row that it takes.
const IN_A_ROW: u32 = 2;

/// Watches the steps after a setting has been kept. Only values that all ranks have received enter.
#[derive(Debug, Default)]
pub(super) struct Watch {
    seconds: Vec<f64>,
    usual: Option<f64>,
    changed: u32,
}

impl Watch {
    /// Takes the seconds of a step. Returns the former and the current seconds of a step, if they have
    /// changed.
    pub(super) fn step(&mut self, seconds: f64) -> Option<(f64, f64)> {
        self.seconds.push(seconds);
        if self.seconds.len() < WINDOW {
            return None;
        }
        let now = lower_median(&mut self.seconds);
        self.seconds.clear();
        let usual = *self.usual.get_or_insert(now);
        let is_other = now.max(usual) > CHANGED * now.min(usual) && (now - usual).abs() >= LEAST;
        self.changed = if is_other { self.changed + 1 } else { 0 };
        (self.changed >= IN_A_ROW).then_some((usual, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(watch: &mut Watch, count: usize, seconds: f64) -> Option<(f64, f64)> {
        (0..count).filter_map(|_| watch.step(seconds)).last()
    }

    #[test]
    fn a_lasting_change_is_seen_and_a_passing_one_is_not() {
        let mut watch = Watch::default();
        assert_eq!(steps(&mut watch, 40, 1.0), None);
        assert_eq!(steps(&mut watch, 10, 2.0), None, "one window");
        assert_eq!(steps(&mut watch, 10, 1.1), None);
        assert_eq!(steps(&mut watch, 4, 9.0), None, "few steps of a window, as evaluations are");
        assert_eq!(steps(&mut watch, 16, 1.0), None);
        assert_eq!(steps(&mut watch, 20, 1.5), Some((1.0, 1.5)));
        let mut quicker = Watch::default();
        steps(&mut quicker, 10, 1.0);
        assert_eq!(steps(&mut quicker, 20, 0.5), Some((1.0, 0.5)));
        let mut short = Watch::default();
        steps(&mut short, 10, 0.002);
        assert_eq!(steps(&mut short, 40, 0.0049), None, "less than a time slice is no matter");
        assert_eq!(steps(&mut short, 20, 0.006), Some((0.002, 0.006)));
    }
}
