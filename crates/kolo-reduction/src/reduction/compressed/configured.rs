//! Common part of the table's reductions: the entry's name, and the settings of the reducer.

use kolo_comm::schedule::WireCost;
use kolo_optim::Settings;
use kolo_optim::table::Entry;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::reduction::interface::{Context, Reducer, Reduction};

/// Makes the reducer of an entry, the settings of which are its fields.
pub(super) fn configured<R: Reducer + DeserializeOwned>(
    entry: &Entry<dyn Reducer>,
    settings: &Settings,
) -> Box<dyn Reducer> {
    Box::new(Configured::<R> { name: entry.name, settings: settings.clone(), reducer: settings.read() })
}

/// A reducer with a name and settings; all other methods are those of `reducer`.
struct Configured<R> {
    name: &'static str,
    settings: Settings,
    reducer: R,
}

impl<R: Reducer> Reducer for Configured<R> {
    fn name(&self) -> &str {
        self.name
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn shard_state(&self) -> &'static [&'static str] {
        self.reducer.shard_state()
    }

    fn common_state(&self) -> &'static [&'static str] {
        self.reducer.common_state()
    }

    fn is_sum(&self) -> bool {
        self.reducer.is_sum()
    }

    fn wire_cost(&self) -> Option<WireCost> {
        self.reducer.wire_cost()
    }

    fn safe_below(&self) -> f32 {
        self.reducer.safe_below()
    }

    fn needs_whole_tensors(&self) -> bool {
        self.reducer.needs_whole_tensors()
    }

    fn check(&self, optimizer: &str, settings: &Settings) -> Result<(), String> {
        self.reducer.check(optimizer, settings)
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        self.reducer.build(context)
    }
}
