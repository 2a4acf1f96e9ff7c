//! Options for communication, which the commands that start workers pass on in the environment, and for the
//! cores of the workers.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use kolo::Failure;
use kolo_burn_train::TUNED_STREAMS;
use kolo_comm::schedule::ALGORITHMS;
use kolo_comm::{Group, Options, TransportKind, env};
use kolo_elastic::{COORDINATOR, Member, report_fixed};
use kolo_launch::Bind;

use crate::backends::{self, BACKENDS};

/// Options for the communication between workers.
#[derive(Args)]
pub(crate) struct Communication {
    /// Use only this transport, also on one machine [default: shared memory within a machine, TCP between
    /// machines]
    #[arg(long, value_parser = TransportKind::names())]
    transport: Option<String>,
    /// Seconds that a worker waits for others. In an elastic job on one node, workers always have 300
    /// seconds to arrive [default: 300 to arrive, then 20 times the longest collective so far, at least
    /// 120; in elastic jobs 10 times, at least 15]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<f64>,
    /// Cores of the workers that Kolo starts on this node: none (the system moves workers between cores), or
    /// core (each worker gets an equal part of the cores, or one in turn if there are more workers). Helps
    /// where nothing else computes on the node
    #[arg(long, value_name = "CORES", default_value = "none", hide_possible_values = true)]
    bind: Cores,
    /// True to open extra connections for tuning.
    #[arg(skip)]
    pub(crate) for_tuning: bool,
}

/// Values of `--bind`.
#[derive(Clone, Copy, ValueEnum)]
enum Cores {
    None,
    Core,
}

/// Parses a number of seconds for a timeout.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds < 1e9);
    seconds.ok_or_else(|| "give a number of seconds greater than 0 and below 1e9".into())
}

impl Communication {
    /// Returns how the workers that this command starts are bound to cores.
    pub(crate) fn bind(&self) -> Bind {
        match self.bind {
            Cores::None => Bind::None,
            Cores::Core => Bind::Core,
        }
    }

    /// Returns the values of `--transport` and `--timeout`, as given on the command line.
    pub(crate) fn asked(&self) -> (Option<String>, Option<String>) {
        (self.transport.clone(), self.timeout.map(|seconds| seconds.to_string()))
    }

    /// Returns the environment variables that pass these options and the algorithm on to workers.
    pub(crate) fn environment(&self, algorithm: Option<&String>) -> Vec<(String, OsString)> {
        let timeout = self.timeout.map(|seconds| seconds.to_string());
        [
            (env::TRANSPORT, self.transport.clone()),
            (env::TIMEOUT, timeout),
            (env::ALGORITHM, algorithm.cloned()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_string(), value?.into())))
        .collect()
    }

    /// Joins the group of the job, as a worker. Options of the command line win over environment variables.
    pub(crate) fn group(&self, algorithm: Option<&str>) -> Result<Group, Failure> {
        Ok(Group::of_job(&self.options(algorithm)?)?)
    }

    /// Like [`Communication::group`], over the named backend; without a name, over that of `KOLO_BACKEND`.
    pub(crate) fn group_over(
        &self,
        backend: Option<&str>,
        algorithm: Option<&str>,
    ) -> Result<Group, Failure> {
        let mut options = self.options(algorithm)?;
        if let Some(backend) = backend {
            backends::choose(backend, &mut options);
        }
        Ok(Group::of_job(&options)?)
    }

    /// Returns this worker as a member of an elastic job, if the job is elastic.
    pub(crate) fn member(&self, algorithm: Option<&str>) -> Result<Option<Member>, Failure> {
        Ok(Member::with_options(&self.options(algorithm)?)?)
    }

    /// Reports to the launcher, if Kolo's own has started this worker, that `option` or another backend keeps
    /// it from being a member of an elastic job.
    pub(crate) fn report_fixed(&self, option: Option<&str>, algorithm: Option<&str>) -> Result<(), Failure> {
        let options = self.options(algorithm)?;
        let backend = || options.backend.map(|backend| format!("{}={}", env::BACKEND, backend.name));
        if let Some(setting) = option.map(String::from).or_else(backend) {
            report_fixed(&options, &format!("`{setting}`"));
        }
        Ok(())
    }

    /// True if other workers can replace those of this job that die: Kolo started the job, and its own
    /// backend connects it.
    pub(crate) fn is_elastic(&self) -> bool {
        let has_own_backend = self.options(None).is_ok_and(|options| options.backend.is_none());
        has_own_backend && std::env::var_os(COORDINATOR).is_some()
    }

    fn options(&self, algorithm: Option<&str>) -> Result<Options, Failure> {
        let mut options = Options::from_env_with(BACKENDS)?;
        if let Some(transport) = &self.transport {
            options.transport = TransportKind::named(transport);
        }
        options.timeout = self.timeout.map(Duration::from_secs_f64).or(options.timeout);
        let named = ALGORITHMS.iter().find(|entry| Some(entry.name) == algorithm);
        options.algorithm = named.or(options.algorithm);
        options.spare_streams = self.for_tuning.then_some(TUNED_STREAMS);
        Ok(options)
    }
}

pub(crate) fn algorithms() -> Vec<&'static str> {
    ALGORITHMS.iter().map(|algorithm| algorithm.name).collect()
}
