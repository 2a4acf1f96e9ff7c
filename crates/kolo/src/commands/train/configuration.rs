//! The configuration that the options of `kolo train` make, alone or over a file, and its fit to the workers.

use kolo::Failure;
use kolo_comm::env;
use kolo_comm::schedule::words::counted;
use kolo_data as data;
use kolo_models as models;
use kolo_recipe::{Recipe, RunFolder};
use kolo_weights::initial_weights;

use super::command::made_folder;
use super::options::Train;

impl Train {
    pub(in crate::commands) fn configuration(&self) -> Result<Recipe, Failure> {
        if let Some(folder) = &self.resume {
            let folder = RunFolder::at(folder.clone());
            let config = folder.config()?;
            folder.check_has_tokenizer()?;
            folder.check_tokenizer_setting(&config)?;
            return self.adapted(self.longer(config)?);
        }
        if let Some(path) = &self.config_file {
            // A run folder stands for its configuration.
            let inside = path.join("config.toml");
            let file = Recipe::read(if inside.is_file() { &inside } else { path })?;
            let mut config = self.config.over(&file)?;
            self.divide(&mut config)?;
            return self.adapted(config);
        }
        let mut config = self.config.over(&models::find(&self.config.recipe.model)?.usual())?;
        if let (Some(batch), None) = (config.rate.base_batch, self.scale_lr) {
            return Err(Failure::input(format!(
                "--base-batch {batch}: add --scale-lr, which says how the learning rate follows the batch, or leave it out"
            )));
        }
        config.nproc = self.nproc.unwrap_or(config.nproc);
        config.shards = self.shards_of(config.nproc)?;
        self.divide(&mut config)?;
        self.adapted(config)
    }

    /// Returns the folder of --resume-or-start, if it has a run to continue.
    pub(super) fn earlier(&self) -> Option<RunFolder> {
        self.out.clone().map(RunFolder::at).filter(|folder| self.resumes(folder))
    }

    /// True if no part of the run has been trained, so that it begins with the weights of `--init`.
    pub(super) fn begins(&self) -> bool {
        let folder = made_folder().or(self.earlier());
        self.resume.is_none() && !folder.is_some_and(|folder| folder.has_checkpoints())
    }

    /// Applies the options that set the shards of a step and the rule that scales the learning rate to them.
    fn divide(&self, config: &mut Recipe) -> Result<(), Failure> {
        if self.accumulate.is_some() {
            config.shards = self.shards_of(self.nproc.unwrap_or(config.nproc))?;
        }
        config.shards = self.shards.unwrap_or(config.shards);
        if let Some(rule) = self.scale_lr {
            if config.rate.base_batch.is_none() {
                return Err(Failure::input(
                    "--scale-lr: add --base-batch, the global batch that --lr was chosen for",
                ));
            }
            config.rate.scaling = rule.into();
        }
        Ok(())
    }

    /// Returns the configuration of the run to continue, with the numbers of epochs, steps and
    /// checkpoints and the limit of time that the user gave.
    fn longer(&self, mut config: Recipe) -> Result<Recipe, Failure> {
        if let Some(folder) = &self.config.recipe.offload {
            config.offload = Some(std::path::absolute(folder).unwrap_or(folder.clone()));
        }
        if self.config.has("keep_checkpoints") {
            config.keep_checkpoints = self.config.recipe.keep_checkpoints;
        }
        if self.config.has("max_hours") {
            config.max_hours = self.config.recipe.max_hours;
        }
        if let Some(steps) = self.config.recipe.steps {
            let problem = match config.steps {
                Some(before) if steps < before => {
                    format!("the run has {} already; give more", counted(before, "step"))
                }
                Some(_) => {
                    config.steps = Some(steps);
                    return self.more_epochs(config);
                }
                None => "the run ends by its epochs; give --epochs".into(),
            };
            return Err(Failure::input(format!("--steps {steps}: {problem}, or leave it out")));
        }
        self.more_epochs(config)
    }

    fn more_epochs(&self, mut config: Recipe) -> Result<Recipe, Failure> {
        let epochs = self.config.recipe.epochs;
        if !self.config.has("epochs") {
            return Ok(config);
        }
        if epochs < config.epochs {
            return Err(Failure::input(format!(
                "--epochs {epochs}: the run has {} already; give more, or leave it out",
                counted(config.epochs, "epoch")
            )));
        }
        if let (Some(steps), None) = (config.steps, self.config.recipe.steps) {
            return Err(Failure::input(format!(
                "--epochs {epochs}: the run ends after {}; give more --steps as well, or leave --epochs out",
                counted(steps, "step")
            )));
        }
        config.epochs = epochs;
        Ok(config)
    }

    /// True if `--set` decides the number of shards.
    fn sets_shards(&self) -> bool {
        self.set
            .iter()
            .any(|set| ["shards", "nproc"].contains(&set.split('=').next().unwrap_or_default().trim()))
    }

    /// Returns the default number of shards for so many workers.
    fn shards_of(&self, workers: usize) -> Result<usize, Failure> {
        let accumulate = self.accumulate.unwrap_or(1);
        if accumulate == 0 {
            return Err(Failure::input("--accumulate 0: it must be at least 1"));
        }
        workers.checked_mul(accumulate).ok_or_else(|| {
            Failure::input(format!(
                "--accumulate {accumulate} × {}: more shards than can be counted",
                counted(workers, "worker")
            ))
        })
    }

    /// Returns what the options and `--set` say, without a file.
    pub(in crate::commands) fn typed(&self) -> Result<Recipe, Failure> {
        self.with_fields(self.config.recipe.clone())
    }

    /// Returns the configuration with the values of `--set`.
    fn with_fields(&self, config: Recipe) -> Result<Recipe, Failure> {
        Ok(self.set.iter().try_fold(config, |config, assignment| config.with_field(assignment))?)
    }

    /// Applies the options that do not change the result; each part of a run may set them anew.
    fn adapted(&self, config: Recipe) -> Result<Recipe, Failure> {
        let mut config = self.with_fields(config)?;
        if config.data.is_empty() {
            config.data = models::find(&config.model)?.usual().data;
        }
        if self.resume.is_none() {
            // A later part of the run may start in another working directory.
            config.data = data::absolute(&config.data);
            config.init = config.init.map(|file| std::path::absolute(&file).unwrap_or(file));
            config.offload = config.offload.map(|folder| std::path::absolute(&folder).unwrap_or(folder));
            config.input.tokenizer = config.input.tokenizer.map(data::Tokenizer::absolute);
            let folder = made_folder().or(self.earlier());
            config.init = config.init.map(|path| initial_weights(path, folder.as_ref())).transpose()?;
            if let Some(folder) = &folder {
                folder.check_has_tokenizer()?;
                folder.set_tokenizer(&mut config);
            }
            if config.input.kept_tokenizer.is_none() && !folder.is_some_and(|folder| folder.has_checkpoints())
            {
                config.take_tokenizer_of_init()?;
            }
        }
        config.run_by(self.nproc);
        if !self.shares.is_empty() {
            config.shares = Some(self.shares.clone());
        }
        if let Some(straggler) = &self.straggler {
            config.straggler.clone_from(straggler);
        }
        config.check()?;
        Ok(config)
    }

    /// Fits the configuration to the workers that another launcher started, and to those it may start if
    /// nodes come later.
    pub(in crate::commands) fn fit(&self, config: &mut Recipe, workers: usize) -> Result<(), Failure> {
        self.fit_to(config, workers, env::most_workers()?.unwrap_or(workers))
    }

    /// Like [`Train::fit`], for at most `most` workers. The number of shards follows `most`: it decides the
    /// bits, is recorded with the run, and so cannot follow the present workers.
    fn fit_to(&self, config: &mut Recipe, workers: usize, most: usize) -> Result<(), Failure> {
        if self.nproc.is_none()
            && self.shards.is_none()
            && self.resume.is_none()
            && self.config_file.is_none()
            && !self.sets_shards()
        {
            config.shards = self.shards_of(workers.max(most))?;
        }
        if most > workers.max(config.shards) {
            log::warn!(
                "{} may come, and the run has {}: the others will have nothing to do; give --shards {most}, which \
                 changes the result, to a run that begins",
                counted(most, "worker"),
                counted(config.shards, "shard")
            );
        }
        match self.shares.is_empty() {
            true => config.run_by(Some(workers)),
            false => config.nproc = workers,
        }
        Ok(config.check_shares()?)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        train: Train,
    }

    /// Two nodes of two workers begin the job; four such nodes may come.
    #[test]
    fn nodes_that_come_later_find_shards() {
        let shards = |options: &[&str], workers, most| {
            let line = Line::parse_from([&["kolo"], options].concat());
            let mut config = line.train.configuration().unwrap();
            line.train.fit_to(&mut config, workers, most).unwrap();
            (config.nproc, config.shards)
        };
        assert_eq!(shards(&[], 4, 8), (4, 8));
        assert_eq!(shards(&["--accumulate", "2"], 4, 8), (4, 16));
        assert_eq!(shards(&["--shards", "6"], 4, 8), (4, 6), "the user's number counts");
        assert_eq!(shards(&[], 4, 4), (4, 4));
    }
}
