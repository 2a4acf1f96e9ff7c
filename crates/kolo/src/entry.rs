//! The frame of a program: it installs a logger, and reports errors to the user and the launcher.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use kolo_launch::UnblockedStderr;
use kolo_program::output::{event, in_lines};
use kolo_program::{Ending, environment, logger};

/// Runs a training program: the user gets errors in clear words, and the launcher learns which worker failed
/// first.
///
/// - Installs a logger if there is none. Warnings go to standard error; `RUST_LOG` selects more.
///   `KOLO_LOG_FORMAT=json` makes each message a JSON object. Each line carries the rank if several workers
///   run and `kolo launch` does not prefix their output.
/// - Refuses wrong values of `KOLO_STOP_ON` and `KOLO_LOG_FORMAT`, and warns of misspelled names of variables.
/// - Prints an error as one sentence with its sources, or with `KOLO_LOG_FORMAT=json` as a JSON object. Under
///   `kolo launch` the error goes to the launcher instead, with the rank at fault if that is another rank (a
///   peer that died or did not answer); the launcher prints the error of the worker that failed first.
///   torchrun receives the report in addition. Panics are reported too.
/// - Returns exit code 2 for wrong input ([`Failure::input`](crate::Failure::input), or an invalid data set
///   or setting), 143 after SIGTERM, else 1.
///
/// `run` may return [`Failure`](crate::Failure), into which `?` converts all of Kolo's errors, as well as any
/// error of your program, or `Box<dyn Error + Send + Sync>`.
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
///             let batch = dataset.batch(Part::Train, &order.shard(step, shard), None)?;
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
    logger::install();
    report_panics();
    // If the signal cannot be caught, a file that is too large ends the program, as it would without Kolo.
    let _ = kolo_burn_train::survive_large_files();
    if let Err(error) = environment::check() {
        return end(&Ending::of(&error));
    }
    let ended = run();
    let _ = UnblockedStderr.flush();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => end(&Ending::of(&*error.into())),
    }
}

/// Reports the error to the launcher. Kolo's launcher prints the error of the worker that failed first; under
/// any other launcher, or none, this function prints the error too.
fn end(ending: &Ending) -> ExitCode {
    let Ending { message, culprit, code, kind, is_json } = ending;
    // Names of files in a message may have control characters.
    let message = &in_lines(message);
    let reported = kolo_launch::report_failure_of_kind(message, *culprit, *kind);
    if reported.is_err() || !kolo_launch::launcher_shows_errors() {
        // If printing fails, the exit code still shows the failure.
        let _ = std::io::stderr().write_all(line(message, *code, *is_json || logger::logs_json()).as_bytes());
    }
    ExitCode::from(*code)
}

/// Formats the message of a failure: a sentence, or an event as those of `--log-format json`.
fn line(message: &str, code: u8, is_json: bool) -> String {
    if !is_json {
        return format!("error: {message}\n");
    }
    let mut event = event("error", message);
    event["exit_code"] = code.into();
    format!("{event}\n")
}

/// Makes a worker's panic part of the launcher's report.
fn report_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default(info);
        // If the report cannot be written, the panic message above remains.
        let _ = kolo_launch::report_failure(&format!("panic: {info}"), None);
    }));
}
