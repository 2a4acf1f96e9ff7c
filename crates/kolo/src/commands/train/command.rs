//! `kolo train` as a launcher, which prepares the run folder and starts the workers, and as one of them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kolo::Failure;
use kolo_burn_train::{
    Job, LOG_FORMAT, LogFormat, Membership, RUN_FOLDER, RangeTest, SampleCounts, check_resume,
    replaces_another,
};
use kolo_comm::env::{self, is_worker};
use kolo_comm::{Op, Rank};
use kolo_dashboard::{SCREEN, Screen};
use kolo_data::{ImageDataSet, Part, Tokenizer};
use kolo_ddp::straggler::Policy;
use kolo_launch::{FailureKind, Messages, Signals};
use kolo_models as models;
use kolo_program::check_lone_worker;
use kolo_program::output::{event, note, print, say, warn};
use kolo_recipe::{Recipe, RunFolder};

use super::super::find_lr;
use super::advice::{advise, ends_job, is_interruption};
use super::options::Train;
use super::refusals::no_dashboard;
use crate::start_workers::start_workers;

impl Train {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        if self.json {
            self.live.log_format = LogFormat::Json;
        }
        if self.print_config {
            let config = self.configuration()?;
            models::find(&config.model)?;
            return print(&format!("{}\n", config.to_toml()?.trim_end()));
        }
        if is_worker() {
            check_lone_worker(self.nproc)?;
            self.out = folder_of_launcher().or(self.out);
            self.check_place()?;
            self.communication.for_tuning = self.configuration()?.tune;
            return self.work();
        }
        self.check_place()?;
        let config = self.configuration()?;
        self.elastic.servers = Some(self.elastic.servers_of(&config));
        self.refuse(&config)?;
        // Mistakes in the data are reported once, before any worker starts.
        let images = config.open_data_of(self.resume.as_deref())?;
        self.refuse_images(&config, &*images)?;
        config.plan(images.samples(Part::Train))?;
        if let (Some(given), Some(weights)) = (&self.config.recipe.init, &config.init)
            && RunFolder::at(given.clone()).is_run()
        {
            self.report(&format!("--init {}: begins with {}", given.display(), weights.display()), note);
        }
        // A signal from here on must not leave an empty folder in the way of the next try. One that is there
        // may have to be waited for.
        let begins = !self.may_continue();
        let signals = begins.then(|| Signals::catch(&self.elastic.stop_signals())).transpose()?;
        let folder = self.folder(&config)?;
        if self.may_continue() {
            folder.wait_until_free(self.take_over)?;
        }
        if self.resumes(&folder) {
            check_resume(&folder, &config, &*images, self.accept_changed_data)?;
        } else if self.find_lr.is_none() {
            // The workers need not train it again.
            folder.keep_tokenizer(images.tokenizer())?;
            // Nor will they know that it was trained.
            let shortfall = images.tokenizer().and_then(Tokenizer::shortfall);
            shortfall.into_iter().for_each(|words| self.report(&words, warn));
        }
        let mut env = self.environment();
        env.push((RUN_FOLDER.to_string(), folder.path().as_os_str().to_owned()));
        let messages = match self.live.log_format {
            LogFormat::Text => Messages::Text,
            LogFormat::Json => {
                env.push((LOG_FORMAT.to_string(), "json".into()));
                Messages::Json
            }
        };
        if !self.live.dashboard && self.live.log_format == LogFormat::Text {
            note(&format!("{}: {}", config.data, SampleCounts::of(&*images)));
        }
        if let Some(steps) = self.find_lr {
            let words = format!(
                "--find-lr {steps}: the rate grows from 1e-7 to 10 in place of the recipe's rates and steps; \
                 nothing is evaluated or saved"
            );
            self.report(&words, note);
        }
        let screen = self.live.dashboard.then(Screen::hold).transpose().map_err(no_dashboard)?;
        env.extend(screen.as_ref().map(|screen| (SCREEN.to_string(), screen.path().as_os_str().to_owned())));
        let result = start_workers(
            config.nproc,
            self.master_port,
            env,
            &self.elastic,
            self.communication.bind(),
            messages,
            signals,
        );
        // The dashboard's screen ends before further messages.
        drop(screen);
        // A signal to workers that had nothing left to do.
        let is_over = || {
            let length = |recipe: &Recipe| (recipe.steps, recipe.epochs);
            folder.is_complete() && folder.config().is_ok_and(|own| length(&own) == length(&config))
        };
        let result = result.or_else(|failure| match is_interruption(&failure) && is_over() {
            true => Ok(()),
            false => Err(failure),
        });
        if let (Err(failure), None) = (&result, &self.resume) {
            match failure.kind() {
                Some(FailureKind::WrongInput) => folder.discard_without_checkpoint(),
                // Its configuration shows why.
                Some(FailureKind::Diverged) => {}
                _ => folder.discard_unused(),
            }
        }
        if let Some(file) = &self.live.trace {
            show_timeline(file);
        }
        result.map_err(|failure| advise(failure, &folder))
    }

    /// True if the run's folder exists.
    pub(in crate::commands) fn is_there(&self) -> bool {
        self.out.clone().is_some_and(|path| RunFolder::at(path).is_run())
    }

    /// Removes the run's folder if a signal has ended all workers before the first step, so that the same
    /// command begins the run.
    pub(in crate::commands) fn discard_if_interrupted(&self, failure: Failure) -> Failure {
        match self.out.clone().filter(|_| self.resume.is_none() && is_interruption(&failure)) {
            Some(path) => {
                let folder = RunFolder::at(path);
                folder.discard_unused();
                if folder.is_run() { failure } else { advise(failure, &folder) }
            }
            None => failure,
        }
    }

    /// Refuses a place of the run folder that workers cannot tell each other.
    fn check_place(&self) -> Result<(), Failure> {
        let given = self.resume.clone().or(self.out.clone()).unwrap_or("runs".into());
        let path = std::path::absolute(&given).unwrap_or(given);
        match path.to_str() {
            Some(_) => Ok(()),
            None => Err(Failure::input(format!(
                "{}: the path of a run folder must be UTF-8; choose another --out, or begin in another folder",
                path.display()
            ))),
        }
    }

    /// Prints a message by `text`, or as a line of `--log-format json`.
    fn report(&self, message: &str, text: fn(&str)) {
        match self.live.log_format {
            LogFormat::Text => text(message),
            LogFormat::Json => note(&event("note", message).to_string()),
        }
    }

    /// Environment of the workers that this command starts.
    pub(in crate::commands) fn environment(&self) -> Vec<(String, OsString)> {
        self.communication.environment(self.algorithm.as_ref())
    }

    fn work(&self) -> Result<(), Failure> {
        let mut config = self.configuration()?;
        // Checked before the run folder exists, which would stand in the way of the next try.
        models::find(&config.model)?;
        self.check_shared_memory(&config)?;
        let data = config.open_data_of(self.resume.as_deref())?;
        self.refuse_images(&config, &*data)?;
        let algorithm = self.algorithm.as_deref();
        // A worker that dies takes its pushes along, or its part of the optimizer's state.
        let needs_all = config.needs_all_workers();
        let member = match needs_all {
            Some(_) => None,
            None => self.communication.member(algorithm)?,
        };
        if let Some(mut member) = member {
            // Workers that join later use the number at the start too: all need the same recipe.
            self.fit(&mut config, started()?)?;
            let folder = match made_folder() {
                Some(folder) => folder,
                None if replaces_another() => {
                    let path = folder_of_launcher().or(self.resume.clone()).or(self.out.clone());
                    RunFolder::of_running_job(path, &member.job_id()?)?
                }
                None => self.claim(&config, Some(&member.job_id()?))?,
            };
            return self.train(config, data, Membership::Elastic(member), Some(folder));
        }
        if config.straggler()? == Policy::Drop {
            return Err(Failure::input(
                "--straggler drop: these workers cannot continue with fewer, because `kolo train` has not \
                 started them, another backend than Kolo's own connects them, or --reduction keeps \
                 residuals with each of them; use --straggler rebalance, which leaves a slow one less to do",
            ));
        }
        let option = needs_all.as_ref().map(|needs| &*needs.option);
        self.communication.report_fixed(option, algorithm)?;
        let group = self.communication.group(algorithm)?;
        let mut servers = [i32::from(group.is_server())];
        group.all_reduce(&mut servers, Op::Sum)?;
        self.fit(&mut config, group.world_size().saturating_sub(servers[0] as usize))?;
        let folder = match made_folder() {
            Some(folder) => Some(folder),
            None if group.rank().0 == 0 => Some(self.folder(&config)?),
            // Rank 0 makes the folder.
            None => {
                let earlier = self.resume.clone().or(self.out.clone().filter(|_| self.resume_or_start));
                folder_of_launcher().or(earlier).map(RunFolder::at)
            }
        };
        self.train(config, data, Membership::Fixed(group), folder)
    }

    fn train(
        &self,
        config: Recipe,
        data: Arc<dyn ImageDataSet>,
        membership: Membership,
        folder: Option<RunFolder>,
    ) -> Result<(), Failure> {
        let model = models::find(&config.model)?;
        let mut resume = folder.as_ref().is_some_and(|folder| self.resumes(folder));
        if let Membership::Fixed(group) = &membership {
            // Other ranks may not see the checkpoints yet.
            resume = group.broadcast_value(resume, Rank(0))?;
        }
        // `kolo train` adds the advice for the workers that it starts.
        let seen = folder.clone().or_else(|| self.out.clone().map(RunFolder::at));
        let advised = seen.filter(|_| folder_of_launcher().is_none());
        let is_elastic = matches!(membership, Membership::Elastic(_));
        let range_test = self.find_lr.map(RangeTest::new);
        let place = folder.as_ref().map(|folder| folder.path().to_owned());
        let job = Job {
            // Nothing of a range test may be taken for a trained model.
            folder: folder.filter(|_| range_test.is_none()),
            resume,
            range_test: range_test.clone(),
            take_over: self.take_over,
            accept_changed_data: self.accept_changed_data,
            min_workers: self.elastic.min(),
            slowdowns: self.slow.clone(),
            live: self.live.clone(),
            stop_on: self.elastic.stop_on.clone(),
            ..Job::new(config)
        };
        let trained = model.train(job, data, membership).map_err(Failure::from);
        trained.map(drop).map_err(|failure| match advised {
            // A job goes on without an elastic worker that fails.
            Some(folder) if !is_elastic || ends_job(&failure) => advise(failure, &folder),
            _ => failure,
        })?;
        match range_test.zip(place) {
            Some((test, place)) => find_lr::show(&test, &place, self.live.log_format),
            None => Ok(()),
        }
    }

    /// Returns the run folder. The first worker makes it if another launcher has started the job of this id.
    fn claim(&self, config: &Recipe, job: Option<&str>) -> Result<RunFolder, kolo_recipe::Error> {
        match (&self.resume, self.out.clone(), job) {
            (Some(path), ..) => Ok(RunFolder::at(path.clone())),
            (None, Some(path), _) if self.resume_or_start => RunFolder::create_or_continue(path, config, job),
            (None, Some(path), Some(job)) => RunFolder::claim(path, config, job),
            (None, Some(path), None) => RunFolder::create(path, config),
            (None, None, Some(job)) => RunFolder::claim_numbered(config, job),
            (None, None, None) => RunFolder::create_numbered(config),
        }
    }

    fn folder(&self, config: &Recipe) -> Result<RunFolder, kolo_recipe::Error> {
        self.claim(config, None)
    }

    /// True if the folder may hold an earlier part of the run.
    pub(in crate::commands) fn may_continue(&self) -> bool {
        self.resume.is_some() || self.resume_or_start
    }

    pub(in crate::commands) fn resumes(&self, folder: &RunFolder) -> bool {
        self.resume.is_some() || self.resume_or_start && folder.has_checkpoints()
    }
}

/// Prints the path of the timeline. Workers of a failed job leave parts, which this function joins.
fn show_timeline(file: &Path) {
    if kolo_trace::parts_folder(file).exists()
        && let Err(error) = kolo_trace::join(file)
    {
        warn(&error.to_string());
    }
    if file.exists() {
        say!("timeline: {}, for https://ui.perfetto.dev", file.display());
    }
}

/// Returns the run folder from the environment, which wins over `--out`.
fn folder_of_launcher() -> Option<PathBuf> {
    std::env::var_os(RUN_FOLDER).map(PathBuf::from)
}

/// Returns the run folder that the launcher or another worker has made.
pub(super) fn made_folder() -> Option<RunFolder> {
    folder_of_launcher().filter(|path| path.exists()).map(RunFolder::at)
}

/// Reads the number of workers at the start of the job, without its servers, from the environment.
fn started() -> Result<usize, Failure> {
    let text = std::env::var(env::WORLD_SIZE).unwrap_or_default();
    let all = text.parse::<usize>().ok().filter(|all| *all <= env::MOST_PROCESSES);
    let servers = env::servers()?;
    let number = all.and_then(|all| all.checked_sub(servers));
    number.filter(|workers| *workers > 0).ok_or_else(|| {
        Failure::input(format!("{} is `{text}`; it must be a number of workers", env::WORLD_SIZE))
    })
}
