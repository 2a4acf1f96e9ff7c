//! Settings of the optimizer for some of the model's tensors: `--group` and `--no-decay`.

use kolo_ddp::optimizer::{GroupError, Optimizer};
use kolo_ddp::table::Entry;
use kolo_ddp::{Layout, ParamGroup, Selector};

use super::Recipe;
use crate::error::Error;

const GROUP: &str = "--group";
const NO_DECAY: &str = "--no-decay";

impl Recipe {
    /// All groups of parameters: those of `--group`, then the one of `--no-decay`, which so counts whatever
    /// the others say.
    pub(crate) fn all_groups(&self) -> Vec<ParamGroup> {
        let no_decay = (!self.no_decay.is_empty()).then(|| ParamGroup::without_decay(self.no_decay.clone()));
        self.groups.iter().cloned().chain(no_decay).collect()
    }

    pub(super) fn check_groups(&self, optimizer: &Entry<dyn Optimizer>) -> Result<(), Error> {
        let wrong = |option| move |error| Error::Group { option, error };
        self.groups.iter().try_for_each(|group| group.check(optimizer)).map_err(wrong(GROUP))?;
        match self.no_decay.is_empty() {
            true => Ok(()),
            false => {
                ParamGroup::without_decay(self.no_decay.clone()).check(optimizer).map_err(wrong(NO_DECAY))
            }
        }
    }

    /// In the words of the command line what the replica says, which knows the model.
    pub(crate) fn refused_by_replica(&self, error: kolo_ddp::Error) -> Error {
        let kolo_ddp::Error::Groups(error) = error else { return error.into() };
        let option = match &error {
            GroupError::NoMatch { tensors, .. } if self.is_of_no_decay(tensors) => NO_DECAY,
            _ => GROUP,
        };
        Error::Group { option, error }
    }

    fn is_of_no_decay(&self, tensors: &str) -> bool {
        let words: Vec<String> = self.no_decay.iter().map(Selector::to_string).collect();
        words.iter().any(|word| word == tensors) || words.join(",") == tensors
    }

    /// What each group is, and how many tensors are in it, for who reads along; nothing without groups.
    pub(crate) fn describe_groups(&self, model: &Layout) -> String {
        let line = |group: &ParamGroup| {
            let tensors = model.spans().iter().filter(|span| group.selects(&span.spec, model)).count();
            format!(", {group} ({tensors} tensors)")
        };
        self.all_groups().iter().map(line).collect()
    }
}
