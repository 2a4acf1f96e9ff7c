//! Options of `kolo train` that are refused before a worker starts.

use kolo::Failure;
use kolo_burn_train::check_metric;
use kolo_comm::SHM;
use kolo_comm::env::{self, is_worker};
use kolo_comm::schedule::ALGORITHMS;
use kolo_dashboard::{NoTerminal, Screen};
use kolo_data::{ImageDataSet, Part};
use kolo_models as models;
use kolo_recipe::{NeedsAll, Recipe};
use kolo_weights::{WeightsFile, check_tokenizer_of_init};

use super::options::Train;
use crate::backends::NATIVE;
use crate::options::Elastic;

impl Train {
    /// Refuses wrong options before any worker starts.
    pub(in crate::commands) fn refuse(&self, config: &Recipe) -> Result<(), Failure> {
        models::find(&config.model)?;
        config.check_shares()?;
        config.check_offload_folder()?;
        let number = |name: &str, given: Option<usize>| given.map(|number| format!("{name} {number}"));
        let Elastic { min, max_restarts, .. } = self.elastic;
        let given: Vec<String> =
            [number("--min", min), number("--max-restarts", max_restarts)].into_iter().flatten().collect();
        if !given.is_empty() {
            refuse_fewest(&given.join(" and "), config)?;
        }
        if !is_worker() {
            let servers = self.elastic.servers_of(config);
            config.sync.check_servers(servers)?;
            config.check_sharding_with_servers(servers)?;
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

    /// Refuses a backend or a transport that shares no memory for workers with one copy of the state.
    pub(in crate::commands) fn check_shared_memory(&self, config: &Recipe) -> Result<(), Failure> {
        let backend = std::env::var(env::BACKEND).ok().filter(|name| name != NATIVE);
        let transport = self.communication.asked().0.filter(|name| name != SHM.name);
        let asked = backend.map(|name| format!("{}={name}", env::BACKEND));
        match asked.or(transport.map(|name| format!("--transport {name}"))).filter(|_| config.is_shared()) {
            Some(asked) => Err(Failure::input(format!(
                "--shard host with {asked}: it needs workers that share memory; leave out one of the two"
            ))),
            None => Ok(()),
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
    let holders = match config.is_divided() {
        true => "worker",
        false => "worker and server",
    };
    Err(Failure::input(format!(
        "{options}: with {option} each {holders} has state that no other has, so the job ends when one dies, and --resume \
         continues it; {way_out} {options} out"
    )))
}

pub(super) fn no_dashboard(problem: NoTerminal) -> Failure {
    Failure::input(format!("--dashboard: {problem}"))
}
