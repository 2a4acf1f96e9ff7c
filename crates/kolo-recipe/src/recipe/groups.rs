//! Settings for some of the model's tensors: `--group`, `--no-decay`, `--no-trust-ratio`, `--init-skip` and
//! `--freeze`.

use kolo_ddp::optimizer::{GroupError, Optimizer};
use kolo_ddp::table::Entry;
use kolo_ddp::{Layout, ParamGroup, Selector};
use kolo_run_folder::units::counted;

use super::Recipe;
use crate::error::Error;

const GROUP: &str = "--group";
const INIT_SKIP: &str = "--init-skip";
const FREEZE: &str = "--freeze";

impl Recipe {
    /// Returns all groups of parameters: those of `--group`, then one for each switch, which therefore wins
    /// over them.
    pub(crate) fn all_groups(&self) -> Vec<ParamGroup> {
        let switches = self.switches().into_iter().map(|(_, group)| group);
        self.groups.iter().cloned().chain(switches).collect()
    }

    /// Returns the options that make a group with a single setting, if they name tensors.
    fn switches(&self) -> Vec<(&'static str, ParamGroup)> {
        let no_decay = ParamGroup::without_decay(self.no_decay.clone());
        let no_trust_ratio = ParamGroup::without_trust_ratio(self.no_trust_ratio.clone());
        let all = [("--no-decay", no_decay), ("--no-trust-ratio", no_trust_ratio)];
        all.into_iter().filter(|(_, group)| !group.tensors.is_empty()).collect()
    }

    pub(super) fn check_groups(&self, optimizer: &Entry<dyn Optimizer>) -> Result<(), Error> {
        let check = |option: &'static str, group: &ParamGroup| {
            check_words(option, &group.tensors)?;
            if self.own.optimizer.is_some() {
                return Ok(());
            }
            group.check(optimizer).map_err(|error| Error::Group { option, error })
        };
        self.groups.iter().try_for_each(|group| check(GROUP, group))?;
        self.switches().iter().try_for_each(|(option, group)| check(option, group))
    }

    pub(super) fn check_freeze(&self) -> Result<(), Error> {
        check_words(FREEZE, &self.freeze)
    }

    pub(super) fn check_init_skip(&self) -> Result<(), Error> {
        check_words(INIT_SKIP, &self.init_skip)?;
        match self.init_skip.is_empty() || self.init.is_some() {
            true => Ok(()),
            false => {
                let problem = "add --init, whose weights for these tensors Kolo then skips";
                Err(Error::setting(INIT_SKIP, joined(&self.init_skip), problem))
            }
        }
    }

    /// Converts the error of a replica, whose model decides what a group selects, into the words of the
    /// command line.
    pub fn refused_group(&self, error: GroupError) -> Error {
        let option = match &error {
            GroupError::NoMatch { tensors, .. } => {
                let switches = self.switches();
                let found = switches.iter().find(|(_, group)| is_named(&group.tensors, tensors));
                found.map_or(GROUP, |(option, _)| option)
            }
            _ => GROUP,
        };
        Error::Group { option, error }
    }

    /// Converts the error of freezing a model's parameters into the words of the command line.
    pub fn refused_freeze(&self, error: GroupError) -> Error {
        Error::Group { option: FREEZE, error }
    }

    /// Describes each group and its number of tensors; empty without groups.
    pub fn describe_groups(&self, model: &Layout) -> String {
        let line = |group: &ParamGroup| {
            let tensors = model.spans().iter().filter(|span| group.selects(&span.spec, model)).count();
            format!(", {group} ({})", counted(tensors, "tensor"))
        };
        self.all_groups().iter().map(line).collect()
    }
}

/// Refuses a selector without a word.
fn check_words(option: &'static str, selectors: &[Selector]) -> Result<(), Error> {
    match selectors.iter().any(|selector| selector.to_string().is_empty()) {
        true => {
            let problem = "a name or a class of tensors is missing";
            Err(Error::setting(option, format!("'{}'", joined(selectors)), problem))
        }
        false => Ok(()),
    }
}

fn joined(selectors: &[Selector]) -> String {
    selectors.iter().map(Selector::to_string).collect::<Vec<_>>().join(",")
}

/// True if an error names one of these selectors, or all of them.
fn is_named(selectors: &[Selector], named: &str) -> bool {
    let words: Vec<String> = selectors.iter().map(Selector::to_string).collect();
    words.iter().any(|word| word == named) || joined(selectors) == named
}
