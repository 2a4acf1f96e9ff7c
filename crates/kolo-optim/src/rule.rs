//! The frame of the table's optimizers: settings, a [`Rule`] for each group of tensors, and the state.

use crate::groups::{GroupError, GroupSettings, by_group};
use crate::layout::Layout;
use crate::optimizer::{Optimizer, Scope, Update, UsualRates};
use crate::store::StatelessRule;
use crate::table::{Entry, Settings};

/// A rule for the tensors of one group, with `N` numbers of state for each element.
pub(crate) trait Rule<const N: usize>: Send + 'static {
    /// Data that the rules of all groups share besides the state.
    type Scratch: Default + Send;

    const SCOPE: Scope = Scope::Element;
    /// Names of the state.
    const STATE: [&'static str; N];
    const USUAL_RATES: Option<UsualRates>;

    /// Prepares step `step`, counted from 1.
    fn begin(&mut self, step: u64, learning_rate: f64);

    /// Steps elements, given their state; without state the slices are empty.
    fn update(&self, update: Update<'_>, state: [&mut [f32]; N], scratch: &mut Self::Scratch);

    fn has_state(&self) -> bool {
        true
    }

    fn scratch(_: &Layout) -> Self::Scratch {
        Self::Scratch::default()
    }
}

/// Makes the optimizer of an entry from its settings. `new` makes a rule from the factor of the learning rate
/// and the settings of a group.
pub(crate) fn optimizer<R: Rule<N>, const N: usize>(
    entry: &'static Entry<dyn Optimizer>,
    settings: &Settings,
    new: fn(f64, &Settings) -> R,
) -> Box<dyn Optimizer> {
    let (groups, state) = (vec![new(1.0, settings)], [const { Vec::new() }; N]);
    Box::new(Grouped {
        entry,
        settings: settings.clone(),
        new,
        groups,
        len: 0,
        state,
        scratch: R::Scratch::default(),
    })
}

struct Grouped<R: Rule<N>, const N: usize> {
    entry: &'static Entry<dyn Optimizer>,
    settings: Settings,
    new: fn(f64, &Settings) -> R,
    groups: Vec<R>,
    /// Number of elements of flat memory.
    len: usize,
    /// Empty if no group has state.
    state: [Vec<f32>; N],
    scratch: R::Scratch,
}

impl<R: Rule<N>, const N: usize> Optimizer for Grouped<R, N> {
    fn name(&self) -> &str {
        self.entry.name
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn scope(&self) -> Scope {
        R::SCOPE
    }

    fn usual_rates(&self) -> Option<UsualRates> {
        R::USUAL_RATES
    }

    fn set_groups(&mut self, groups: &[GroupSettings]) -> Result<(), GroupError> {
        let groups = by_group(self.entry, &self.settings, groups)?.into_iter();
        self.groups = groups.map(|(lr_scale, settings)| (self.new)(lr_scale, &settings)).collect();
        let len = if self.groups.iter().any(R::has_state) { self.len } else { 0 };
        self.state.iter_mut().for_each(|state| state.resize(len, 0.0));
        Ok(())
    }

    fn init(&mut self, layout: &Layout) {
        self.len = layout.len();
        let len = if self.groups.iter().any(R::has_state) { self.len } else { 0 };
        self.state = std::array::from_fn(|_| vec![0.0; len]);
        self.scratch = R::scratch(layout);
    }

    fn begin(&mut self, step: u64, learning_rate: f64) {
        self.groups.iter_mut().for_each(|group| group.begin(step, learning_rate));
    }

    fn update(&mut self, update: Update<'_>) {
        let state =
            self.state.each_mut().map(|state| state.get_mut(update.range.clone()).unwrap_or_default());
        self.groups[update.group].update(update, state, &mut self.scratch);
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        let state = R::STATE.into_iter().zip(self.state.iter_mut().map(Vec::as_mut_slice));
        state.filter(|_| self.groups.iter().any(R::has_state)).collect()
    }
    fn rule(&mut self) -> Option<&mut dyn StatelessRule> {
        Some(self)
    }
}

impl<R: Rule<N>, const N: usize> StatelessRule for Grouped<R, N> {
    fn arrays(&mut self) -> Vec<&'static str> {
        R::STATE.into_iter().filter(|_| self.groups.iter().any(R::has_state)).collect()
    }

    fn init_stateless(&mut self, layout: &Layout) {
        self.len = 0;
        self.state = [const { Vec::new() }; N];
        self.scratch = R::scratch(layout);
    }

    fn update_with(&mut self, update: Update<'_>, state: &mut [&mut [f32]]) {
        let mut given = state.iter_mut();
        let state = std::array::from_fn(|_| given.next().map_or(&mut [][..], |state| &mut **state));
        self.groups[update.group].update(update, state, &mut self.scratch);
    }
}
