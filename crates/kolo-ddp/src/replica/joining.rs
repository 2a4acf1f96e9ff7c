//! Agreement of a new group's ranks on one state, and their copies of the state that only one rank holds.

use std::sync::Arc;

use kolo_comm::{Group, Processor, Rank, processor};
use kolo_reduction::Error;
use kolo_sync::{Stated, Warning};

use super::handle::Replica;

impl Replica {
    /// Brings this rank to one state with the ranks of `group`, and trains with them from now on. Warns the
    /// user if they compute on processors of several kinds.
    pub(super) fn join(&mut self, group: Arc<Group>) -> Result<(), Error> {
        let processors: Vec<Processor> = group.all_gather_value(&self.core.ranks.processor)?;
        let speaks = group.rank() == Rank(0);
        self.come_to_one_state(group)?;
        let core = &mut self.core;
        if core.progress.steps == 0 {
            core.look_at_first_values()?;
        }
        if let Some(rank) = processor::first_other(&processors)
            && speaks
            && core.ranks.told_processors.as_ref() != Some(&processors)
        {
            let [first, other] = [0, rank.0].map(|rank| processors[rank].to_string());
            core.warn(Warning::ProcessorsDiffer { first, rank, other });
            core.ranks.told_processors = Some(processors);
        }
        Ok(())
    }

    /// Brings this rank to one state with the ranks of `group`, and trains with them from now on.
    fn come_to_one_state(&mut self, group: Arc<Group>) -> Result<(), Error> {
        let caps = self.core.caps();
        let mut settings = Stated::of_job(&self.core.config, caps, &*self.core.weights.optimizer)?;
        self.mode.add_settings(caps, &mut settings)?;
        let before = self.core.progress.steps;
        let mut expected = self.core.meet(&group, &settings)?;
        if self.core.progress.steps != before {
            self.mode.go_on_at(self.core.progress.steps);
        }
        let restored = self.go_back(&group)?;
        if let Some(restored) = &restored {
            expected = restored.uses().to_vec();
        }
        self.mode.divide(&mut self.core, &group)?;
        self.core.begin_steps(group, expected)?;
        let steps = self.core.progress.steps;
        self.mode.form(&mut self.core, steps)?;
        if self.has_lost_state(restored.as_ref()) {
            self.warn_of_lost_state();
        }
        if let Some(restored) = restored {
            self.put_back(restored)?;
        }
        self.core.set_joined();
        self.back_up_at_start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_comm::threads;
    use kolo_optim::{Kind, ParamSpec, Settings, named};
    use kolo_sync::Config;

    /// Lets two ranks meet twice, with these processors the second time; returns the warnings of each.
    fn warnings_of(processors: [Processor; 2]) -> [Vec<Warning>; 2] {
        let told = threads::spawn(2, |group| {
            let rank = group.rank().0;
            let group = Arc::new(group);
            let specs = vec![ParamSpec::new("a", vec![4], Kind::Parameter { decay: true })];
            let optimizer = named("sgd", &Settings::default()).unwrap();
            let mut replica =
                Replica::new(group.clone(), specs, vec![0.0; 4], &Config::default(), optimizer).unwrap();
            assert_eq!(replica.core.notices.warnings.take(), [], "both are this one");
            replica.core.ranks.processor = processors[rank].clone();
            let address = replica.values().unwrap().as_ptr();
            replica.join(group.clone()).unwrap();
            let told = replica.core.notices.warnings.take();
            replica.join(group).unwrap();
            assert_eq!(replica.core.notices.warnings.take(), [], "it is told once");
            replica.begin_anew().unwrap();
            assert_eq!(
                replica.values().unwrap().as_ptr(),
                address,
                "joining and loading copy into the values"
            );
            told
        });
        told.unwrap().try_into().unwrap()
    }

    #[test]
    fn another_kind_of_processor_is_told_once_by_rank_0() {
        let here = Processor::here();
        assert_eq!(warnings_of([here.clone(), here.clone()]), [vec![], vec![]]);
        let [told, nothing] = warnings_of([here, Processor::of("Z80")]);
        let [Warning::ProcessorsDiffer { rank: Rank(1), .. }] = told[..] else { panic!("{told:?}") };
        assert!(told[0].to_string().contains("Z80") && nothing.is_empty());
    }
}
