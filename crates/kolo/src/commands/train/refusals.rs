//! Options of `kolo train` that are refused before a worker starts, and those that do less than they seem to.

use kolo::Failure;
use kolo_burn_train::check_metric;
use kolo_comm::SHM;
use kolo_comm::env::is_worker;
use kolo_comm::schedule::ALGORITHMS;
use kolo_comm::schedule::words::counted;
use kolo_dashboard::{NoTerminal, Screen};
use kolo_data::{ImageDataSet, Part};
use kolo_models as models;
use kolo_recipe::{NeedsAll, Plan, Recipe};
use kolo_weights::{WeightsFile, check_tokenizer_of_init};

use super::options::Train;

impl Train {
    /// Refuses wrong options before any worker starts.
    pub(in crate::commands) fn refuse(&self, config: &Recipe) -> Result<(), Failure> {
        models::find(&config.model)?;
        config.check_shares()?;
        config.check_offload_folder()?;
        if self.elastic.min.is_some() || self.elastic.max_restarts.is_some() {
            refuse_fewest("--min and --max-restarts", config)?;
        }
        if !is_worker() {
            config.sync.check_servers(self.elastic.servers)?;
            config.check_sharding_with_servers(self.elastic.servers)?;
        }
        kolo_burn_train::device(config, 0)?;
        self.check_tune(config)?;
        self.check_shared_memory(config)?;
        if let Some(file) = config.init.as_ref().filter(|_| self.resume.is_none() && self.earlier().is_none())
        {
            WeightsFile::read(file)?;
        }
        if let Some(address) = &self.live.metrics_addr {
            address.check()?;
        }
        if self.live.dashboard {
            Screen::check().map_err(no_dashboard)?;
        }
        if let Some(file) = &self.live.trace {
            kolo_trace::check_free(file).map_err(|error| Failure::input(format!("--trace: {error}")))?;
        }
        Ok(())
    }

    /// Refuses images or options that do not fit the model.
    pub(in crate::commands) fn refuse_images(
        &self,
        config: &Recipe,
        images: &dyn ImageDataSet,
    ) -> Result<(), Failure> {
        config.check_samples(images.samples(Part::Train))?;
        let model = models::find(&config.model)?;
        if self.find_lr.is_none() {
            check_metric(config, model.traits().metrics, images)?;
        }
        model.check(config, images.shape())?;
        match images.tokenizer().filter(|_| self.begins()) {
            Some(tokenizer) => Ok(check_tokenizer_of_init(config, tokenizer)?),
            None => Ok(()),
        }
    }

    /// Refuses a transport that shares no memory for workers with one copy of the state.
    pub(in crate::commands) fn check_shared_memory(&self, config: &Recipe) -> Result<(), Failure> {
        match self.communication.asked().0.as_deref() {
            Some(transport) if config.is_shared() && transport != SHM.name => Err(Failure::input(format!(
                "--shard host with --transport {transport}: it needs workers that share memory; leave out one of the two"
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses `--tune` with algorithms whose order of summation depends on the cuts.
    fn check_tune(&self, config: &Recipe) -> Result<(), Failure> {
        let asked = ALGORITHMS.iter().find(|entry| Some(entry.name) == self.algorithm.as_deref());
        match asked.filter(|algorithm| config.tune && !algorithm.keeps_tree) {
            Some(algorithm) => Err(Failure::input(format!(
                "--tune with --algorithm {}: it adds in an order that depends on how sums are cut, so the bits would change; leave \
                 out one of the two",
                algorithm.name
            ))),
            None => Ok(()),
        }
    }
}

/// Refuses options about the death of workers for a run that cannot go on without one.
pub(in crate::commands) fn refuse_fewest(options: &str, config: &Recipe) -> Result<(), Failure> {
    let Some(NeedsAll { option, remedy }) = config.needs_all_workers() else { return Ok(()) };
    let way_out = remedy.map_or_else(|| "leave".into(), |remedy| format!("add {remedy}, or leave"));
    Err(Failure::input(format!(
        "{options}: with {option} each worker and server has state that no other has, so the job ends when one dies, and --resume \
         continues it; {way_out} {options} out"
    )))
}

/// Settings that are valid but do less than they seem to.
pub(super) fn surprises(config: &Recipe, samples: usize) -> Vec<String> {
    let (shards, workers) = (config.shards, config.nproc);
    let mut found = config.without_effect();
    if shards < workers {
        let idle = workers - shards;
        found.push(format!(
            "--shards {shards}: {idle} of {} {} nothing to do; give --shards {workers} or a multiple of it, which changes the result",
            counted(workers, "worker"),
            if idle == 1 { "has" } else { "have" }
        ));
    }
    let redundancy = config.redundancy;
    if config.is_divided() && redundancy > 1 && workers <= redundancy {
        found.push(format!(
            "--redundancy {redundancy} with {}: each holds all of the state, so --shard saves no memory; \
             give --nproc {} or more",
            counted(workers, "worker"),
            redundancy + 1
        ));
    }
    if ["csv:", "parquet:"].iter().any(|kind| config.data.starts_with(kind)) && config.model != "mlp" {
        found.push(format!(
            "--model {}: its convolutions are for images; for the rows of a table give --model mlp",
            config.model
        ));
    }
    let batch = shards.saturating_mul(config.batch_size);
    if batch > samples {
        found.push(format!(
            "a step of {} × {} takes the whole data of {}; give a smaller --batch-size",
            counted(shards, "shard"),
            counted(config.batch_size, "sample"),
            counted(samples, "sample")
        ));
    }
    let plan = config.plan(samples).ok().filter(|plan| plan.warmup_steps > plan.steps);
    if let Some(Plan { steps, warmup_steps, top_rate, .. }) = plan {
        found.push(format!(
            "--warmup-steps {warmup_steps}: the run has {}, in which the learning rate only rises and does not reach {top_rate}; \
             give --warmup-steps {}",
            counted(steps, "step"),
            steps / 10
        ));
    }
    let mode = &config.sync.mode;
    if mode.traits().staleness_bound.is_some() && config.checkpoint_steps.is_none() {
        let limit = config.max_hours.map_or(String::new(), |hours| format!(", or by --max-hours {hours}"));
        found.push(format!(
            "--sync {mode}: a run that is asked to end, by a signal{limit}, can save only where all workers meet, at the end of an \
             epoch; give --checkpoint-steps for more such places"
        ));
    }
    found
}

pub(super) fn no_dashboard(problem: NoTerminal) -> Failure {
    Failure::input(format!("--dashboard: {problem}"))
}

#[cfg(test)]
mod tests {
    use kolo_recipe::RateConfig;

    use super::*;

    #[test]
    fn settings_that_do_less_than_they_seem_to_are_reported() {
        let rate = RateConfig { warmup_steps: 8, ..RateConfig::default() };
        let usual = Recipe { rate, ..Recipe::default() };
        let config = |shards, batch_size, nproc| Recipe { shards, batch_size, nproc, ..usual.clone() };
        assert_eq!(surprises(&config(2, 50, 2), 100), Vec::<String>::new());
        let idle = "--shards 1: 2 of 3 workers have nothing to do; give --shards 3 or a multiple of it, which changes the result";
        assert_eq!(surprises(&config(1, 50, 3), 100), [idle]);
        assert!(surprises(&config(2, 51, 2), 100)[0].contains("takes the whole data of 100 samples"));
        let rises = "--warmup-steps 8: the run has 7 steps, in which the learning rate only rises and does not reach 0.1; give \
             --warmup-steps 0";
        assert_eq!(surprises(&Recipe { epochs: 7, ..config(2, 50, 2) }, 100), [rises]);
        let limited = Recipe { steps: Some(7), ..config(2, 50, 2) };
        assert_eq!(surprises(&limited, 100), [rises]);
        let mut stale = Recipe { max_hours: Some(0.5), ..config(2, 50, 2) };
        stale.sync.mode = "stale:3".parse().unwrap();
        assert!(surprises(&stale, 100)[0].starts_with(
            "--sync stale:K=3: a run that is asked to end, by a signal, or by --max-hours 0.5, can save only"
        ));
        assert_eq!(surprises(&Recipe { checkpoint_steps: Some(5), ..stale }, 100), Vec::<String>::new());
        let table =
            |model: &str| Recipe { data: "csv:t.csv".into(), model: model.into(), ..config(2, 50, 2) };
        assert!(
            surprises(&table("small"), 100)[0].starts_with("--model small: its convolutions are for images")
        );
        assert_eq!(surprises(&table("mlp"), 100), Vec::<String>::new());
        let mut scaled = config(2, 50, 2);
        scaled.precision.scale = 3.0;
        assert!(surprises(&scaled, 100)[0].starts_with("--loss-scale 3: it has no effect"));
    }
}
