//! The check of runs that average their weights.

use kolo_ddp::table::Value;

use super::Recipe;
use crate::error::Error;

const EMA: &str = "--ema";

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
}
