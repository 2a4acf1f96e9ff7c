//! The beginning and the end of a program: a logger, and errors that reach whoever has to know them.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::SystemTime;

use kolo_comm::{Rank, env};
use kolo_elastic::MEMBER;
use kolo_train::LOG_FORMAT;

use crate::failure::Ending;

/// Runs a training program, so that what goes wrong reaches the user in clear words and the launcher knows
/// which worker was first.
///
/// - A logger is installed where there is none: warnings go to standard error, and `RUST_LOG` says what else.
///   `KOLO_LOG_FORMAT=json` makes each a JSON object. Where several workers run and `kolo launch` does not
///   prefix their output, each line has the rank.
/// - An error is printed as one sentence with its sources. Under `kolo launch` it is reported to the launcher
///   instead, with the rank at fault where that is another one (a peer that died or did not answer); the
///   launcher tells of all workers which one failed first. torchrun gets the report besides. A panic is
///   reported as well.
/// - The exit code is 2 for wrong input ([`Failure::input`](crate::Failure::input), a data set or a setting
///   that cannot be), 143 where SIGTERM asked for the end, else 1.
///
/// `run` may return [`Failure`](crate::Failure), which all of Kolo's errors become by `?`, as well as any
/// error of the program's own, or `Box<dyn Error + Send + Sync>`.
///
/// ```no_run
/// use std::error::Error;
/// use std::process::ExitCode;
///
/// use burn::module::Module;
/// use burn::nn::loss::CrossEntropyLossConfig;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::{Device, Tensor};
/// use kolo::data::{self, Part};
/// use kolo::{Config, Ddp, Group, Loss, Sampler, Settings, image_tensors, optimizer};
///
/// fn main() -> ExitCode {
///     kolo::main(run)
/// }
///
/// #[derive(Module, Debug)]
/// struct Classifier {
///     out: Linear,
/// }
///
/// impl Classifier {
///     fn forward(&self, images: Tensor<4>) -> Tensor<2> {
///         self.out.forward(images.flatten(1, 3))
///     }
/// }
///
/// fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
///     let device = Device::flex().autodiff();
///     device.seed(0);
///     let dataset = data::open("fashion-mnist-small")?;
///     let model = Classifier { out: LinearConfig::new(28 * 28, 10).init(&device) };
///     let config = Config { shards: Some(4), ..Config::default() };
///     let sgd = optimizer::named("sgd", &Settings::default())?;
///     let mut ddp = Ddp::new(Group::from_env()?, model, &config, sgd)?;
///     let sampler = Sampler::new(dataset.samples(Part::Train), 32, 4, 0)?;
///     let criterion = CrossEntropyLossConfig::new().init(&device);
///     let order = sampler.epoch(0);
///     for step in 0..sampler.steps() {
///         for shard in ddp.shards() {
///             let batch = dataset.batch(Part::Train, &order.shard(step, shard), None);
///             let count = batch.len();
///             let (images, labels) = image_tensors(batch, &device);
///             let loss = criterion.forward(ddp.model().forward(images), labels);
///             ddp.backward(Loss::mean(loss, count))?;
///         }
///         ddp.step(0.05)?;
///     }
///     Ok(())
/// }
/// ```
pub fn main<E>(run: impl FnOnce() -> Result<(), E>) -> ExitCode
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    install_logger();
    report_panics();
    // Where it cannot be caught, a file that is too large ends the program as it would without this.
    let _ = kolo_train::survive_large_files();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => end(&Ending::of(&*error.into())),
    }
}

/// Reports the error to the launcher. Kolo's shows that of the worker that failed first; where it is another
/// one, or none, the error is printed as well.
fn end(ending: &Ending) -> ExitCode {
    let Ending { message, culprit, code } = ending;
    let reported = kolo_launch::report_failure(message, *culprit);
    if reported.is_err() || !kolo_launch::launcher_shows_errors() {
        // Where nobody can be told the exit code still says it.
        let _ = std::io::stderr().write_all(format!("error: {message}\n").as_bytes());
    }
    ExitCode::from(*code)
}

/// Installs a logger that shows warnings, or what `RUST_LOG` says, unless the program has one already.
fn install_logger() {
    let mut builder = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn"));
    builder.format_timestamp(None);
    if std::env::var_os(LOG_FORMAT).is_some_and(|format| format == "json") {
        let who = std::env::var(MEMBER).ok().or_else(|| rank_to_show().map(|rank| rank.to_string()));
        builder.format(move |out, record| writeln!(out, "{}", log_object(record, who.as_deref())));
    } else if let Some(rank) = rank_to_show() {
        builder.format(move |out, record| {
            writeln!(out, "[{rank}] [{} {}] {}", record.level(), record.target(), record.args())
        });
    }
    // The program's own logger stays.
    let _ = builder.try_init();
}

/// A message of the logger for programs, as the events of `--log-format json` are.
fn log_object(record: &log::Record<'_>, worker: Option<&str>) -> serde_json::Value {
    serde_json::json!({
        "time_unix": kolo_run_folder::unix_seconds(SystemTime::now()),
        "event": "log",
        "level": record.level().as_str().to_lowercase(),
        "target": record.target(),
        "worker": worker,
        "message": record.args().to_string(),
    })
}

/// The rank that lines of this process have to carry: Kolo's launcher puts it there itself, others do not.
fn rank_to_show() -> Option<Rank> {
    if std::env::var_os(MEMBER).is_some() {
        return None;
    }
    // What is wrong with the launcher's variables is told by whoever needs them.
    let (rank, world_size) = env::rank_and_world_size().ok()??;
    (world_size > 1).then_some(rank)
}

/// Makes a worker's panic part of the launcher's report.
fn report_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default(info);
        // If the report cannot be written, the message above is all there is.
        let _ = kolo_launch::report_failure(&format!("panic: {info}"), None);
    }));
}
