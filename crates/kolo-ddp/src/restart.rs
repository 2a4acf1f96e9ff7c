//! Restart within a run, for `kolo verify`: after a step every replica clears its state and reads it back,
//! as the replica of a new process that resumes the job does.

use std::path::Path;

use crate::checkpoint::{self, Position};
use crate::replica::Replica;
use kolo_reduction::Error;

impl Replica {
    /// Writes a checkpoint into `folder` on rank 0; then all ranks begin anew and read it. A collective.
    /// Errors: a file cannot be written or read: the error, which all ranks get, names it. Or a collective
    /// failed.
    pub(crate) fn restart(&mut self, folder: &Path) -> Result<(), Error> {
        let step = self.steps();
        let position = Position { step, epoch: 0, step_in_epoch: 0, notes: serde_json::Value::Null };
        checkpoint::save_together(folder, self, &position)?;
        self.begin_anew()?;
        checkpoint::load(&checkpoint::path(folder, step), self).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use kolo_comm::threads;
    use kolo_optim::{Kind, Layout, Optimizer, ParamSpec, Settings, SpanId, Update};

    use super::*;
    use kolo_reduction::reduction::{REDUCTIONS, Reducer};
    use kolo_sync::Config;

    /// An optimizer that follows the gradient and its own velocity, which it does not list as state.
    struct Forgetful(Vec<f32>);

    impl Optimizer for Forgetful {
        fn init(&mut self, layout: &Layout) {
            self.0 = vec![0.0; layout.len()];
        }

        fn begin(&mut self, _: u64, _: f64) {}

        fn update(&mut self, Update { range, parameters, gradient, .. }: Update<'_>) {
            for ((p, g), v) in parameters.iter_mut().zip(gradient).zip(&mut self.0[range]) {
                *v = 0.5 * *v + g;
                *p -= 0.01 * *v;
            }
        }

        fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
            Vec::new()
        }
    }

    fn step(replica: &mut Replica, number: u64) {
        for shard in replica.shards() {
            let gradient = |seed: u64| -> Vec<f32> {
                (0..50).map(|i| ((seed * 31 + i) as f32 * 0.7).sin() * 10f32.powi(seed as i32 % 5)).collect()
            };
            let mut pass = replica.begin_shard(1.0, 2.0).unwrap();
            for (span, uses) in [(1, 3), (0, 1)] {
                (0..uses).for_each(|n| pass.ready(SpanId(span), &gradient(number + 4 * shard as u64 + n)));
            }
            pass.ready(SpanId(2), &gradient(number));
            pass.finish().unwrap();
        }
        replica.step(0.01).unwrap();
    }

    /// Returns the bits of rank 0's values after six steps, with a restart after step `cut`, if any.
    fn train<O: Optimizer>(
        world: usize,
        config: &Config,
        optimizer: fn() -> O,
        cut: Option<u64>,
    ) -> Vec<u32> {
        let folder = tempfile::tempdir().unwrap();
        let mut all = threads::spawn(world, |group| {
            let spec = |n: usize| {
                let kind = if n == 2 { Kind::Statistic } else { Kind::Parameter { decay: true } };
                ParamSpec::new(n.to_string(), vec![50], kind)
            };
            let specs = (0..3).map(spec).collect();
            let mut replica =
                Replica::new(Arc::new(group), specs, vec![0.5; 150], config, optimizer()).unwrap();
            let mut run = |steps: Range<u64>| steps.for_each(|number| step(&mut replica, number));
            run(0..cut.unwrap_or(6));
            if let Some(cut) = cut {
                replica.restart(folder.path()).unwrap();
                assert_eq!(replica.steps(), cut);
                (cut..6).for_each(|number| step(&mut replica, number));
            }
            replica.values().unwrap().iter().map(|value| value.to_bits()).collect()
        })
        .unwrap();
        all.remove(0)
    }

    fn adamw() -> Box<dyn Optimizer> {
        kolo_optim::named("adamw", &Settings::default()).unwrap()
    }

    fn sgd() -> Box<dyn Optimizer> {
        kolo_optim::named("sgd", &Settings::default()).unwrap()
    }

    /// The optimizer that a reduction of the momentum alone requires.
    fn frozen() -> Box<dyn Optimizer> {
        kolo_optim::named("adam", &Settings::default().with("freeze_after", 1000.0)).unwrap()
    }

    #[test]
    fn a_run_that_is_cut_goes_on_in_the_same_bits() {
        for entry in REDUCTIONS {
            // The tensors are small.
            let all = entry.setting("dense_below").map(|setting| (setting.name.to_string(), 0.0.into()));
            let reduction: Arc<dyn Reducer> = entry.build(&all.into_iter().collect()).unwrap().into();
            let optimizer = [adamw as fn() -> _, sgd, frozen]
                .into_iter()
                .find(|make: &fn() -> Box<dyn Optimizer>| reduction.fits(&*make(), &[]).is_ok());
            let optimizer = optimizer.unwrap();
            let config = Config { shards: Some(4), reduction, ..Config::default() };
            let expected = train(1, &config, optimizer, None);
            for (world, cut) in [(1, 1), (1, 4), (2, 1), (3, 2)] {
                let cut_run = train(world, &config, optimizer, Some(cut));
                assert!(cut_run == expected, "{}, {world} ranks, after {cut}", entry.name);
            }
        }
    }

    #[test]
    fn islands_that_are_cut_between_two_rounds_go_on_in_the_same_bits() {
        for (sync, islands) in [("local:H=2", 4), ("diloco:H=2", 2), ("post-local:H=2,T=4", 2)] {
            let sync = sync.parse().unwrap();
            let config = Config { shards: Some(4), sync, islands: Some(islands), ..Config::default() };
            let expected = train(1, &config, adamw, None);
            for (world, cut) in [(1, 2), (1, 4), (2, 4), (3, 2)] {
                assert!(train(world, &config, adamw, Some(cut)) == expected, "{world} ranks, after {cut}");
            }
        }
    }

    #[test]
    fn a_run_whose_updates_are_late_is_cut_where_all_are_made() {
        let sync = "delayed:1".parse().unwrap();
        let config = Config { shards: Some(4), sync, backup_every: 2, ..Config::default() };
        let expected = train(1, &config, adamw, None);
        for (world, cut) in [(1, 2), (1, 4), (2, 4), (3, 2)] {
            assert!(train(world, &config, adamw, Some(cut)) == expected, "{world} ranks, after {cut}");
        }
    }

    #[test]
    fn state_that_no_checkpoint_holds_shows() {
        let config = Config { shards: Some(4), ..Config::default() };
        let forgetful = || Forgetful(Vec::new());
        let expected = train(2, &config, forgetful, None);
        assert!(train(2, &config, forgetful, Some(3)) != expected);
    }

    #[test]
    fn a_folder_that_cannot_be_written_ends_all_ranks() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let errors = threads::spawn(3, |group| {
            let spec = ParamSpec::new("a", vec![3], Kind::Parameter { decay: false });
            let config = Config::default();
            let mut replica =
                Replica::new(Arc::new(group), vec![spec], vec![0.0; 3], &config, adamw()).unwrap();
            replica.restart(file.path()).unwrap_err().to_string()
        })
        .unwrap();
        let name = file.path().file_name().unwrap().to_string_lossy().into_owned();
        assert!(errors.iter().all(|error| error.contains(&name)), "{errors:?}");
        assert!(errors[2].contains("rank 0"), "{errors:?}");
    }
}
