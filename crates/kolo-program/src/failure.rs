//! The error with which a program ends: its message, the rank at fault, and the exit code.

use std::error::Error;
use std::fmt;

use kolo_comm::Rank;
use kolo_ddp::optimizer::StoreFault;
use kolo_launch::{FailureKind, LaunchError};

/// Exit code of a program that was started with wrong input, the same as clap's.
const WRONG_INPUT: u8 = 2;
/// Exit code that shells give to a program ended by SIGTERM.
const TERMINATED: u8 = 128 + 15;

/// An error with which `kolo::main` ends a program. `?` converts all of Kolo's errors into it; a
/// program makes its own with [`Failure::input`] and [`Failure::work`].
///
/// ```
/// fn steps(text: &str) -> Result<u64, kolo_program::Failure> {
///     text.parse().map_err(|_| kolo_program::Failure::input(format!("{text} steps: give a whole number")))
/// }
/// assert_eq!(steps("3").ok(), Some(3));
/// assert_eq!(steps("many").unwrap_err().to_string(), "many steps: give a whole number");
/// ```
#[derive(Debug)]
pub struct Failure {
    cause: Box<dyn Error + Send + Sync>,
    /// Lines that tell the user how to continue.
    advice: Vec<String>,
    /// The exit code, if the cause does not decide it.
    code: Option<u8>,
    /// True to print it as JSON.
    is_json: bool,
}

impl Failure {
    /// Makes the failure of a program that was started with wrong input; exit code 2.
    pub fn input(message: impl fmt::Display) -> Self {
        Failure { code: Some(WRONG_INPUT), ..Failure::work(message) }
    }

    /// Makes a failure for anything that went wrong during the work; exit code 1.
    pub fn work(message: impl fmt::Display) -> Self {
        Failure::because(message.to_string().into())
    }

    /// Makes the failure of a program that ended because of SIGTERM; exit code 143. The launcher of an
    /// elastic job then starts no replacement.
    pub fn terminated(message: impl fmt::Display) -> Self {
        Failure { code: Some(TERMINATED), ..Failure::work(message) }
    }

    /// Adds a line that tells the user how to continue.
    pub fn advise(mut self, line: impl fmt::Display) -> Self {
        self.advice.push(line.to_string());
        self
    }

    /// Makes `kolo::main` print the failure as a JSON object, for a command with `--json`.
    pub fn in_json(self) -> Self {
        Failure { is_json: true, ..self }
    }

    /// Returns the kind of the failure, if the error or the launcher's report has one.
    pub fn kind(&self) -> Option<FailureKind> {
        Ending::of(self).kind
    }

    fn because(cause: Box<dyn Error + Send + Sync>) -> Self {
        Failure { cause, advice: Vec::new(), code: None, is_json: false }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sentence(&*self.cause))?;
        self.advice.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

/// Implements `From` for each of these errors.
macro_rules! failure_from {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Failure::because(error.into())
            }
        }
    )*};
}

failure_from!(
    kolo_models::Error,
    kolo_train::Error,
    kolo_weights::WeightsError,
    kolo_recipe::Error,
    kolo_ddp::Error,
    kolo_ddp::CheckpointError,
    kolo_ddp::table::ChoiceError,
    kolo_comm::Error,
    kolo_data::DataError,
    kolo_data::PrefetchError,
    LaunchError,
    std::io::Error
);

/// The end of a program after an error.
#[derive(Debug, PartialEq)]
pub struct Ending {
    /// The error and its sources, as one sentence.
    pub message: String,
    /// The rank at fault, if it is not this process's.
    pub culprit: Option<Rank>,
    /// The exit code.
    pub code: u8,
    /// Kind of the failure, for the launcher.
    pub kind: Option<FailureKind>,
    /// True to print the message as a JSON object.
    pub is_json: bool,
}

impl Ending {
    /// Returns the end of a program after `error`.
    pub fn of(error: &(dyn Error + 'static)) -> Ending {
        let code = chain(error, cause).find_map(exit_code).unwrap_or(1);
        Ending {
            message: sentence(error),
            culprit: chain(error, cause)
                .find_map(|error| error.downcast_ref())
                .and_then(kolo_comm::Error::culprit),
            code,
            kind: match code {
                WRONG_INPUT => Some(FailureKind::WrongInput),
                _ => chain(error, cause).find_map(kind),
            },
            is_json: chain(error, cause)
                .any(|error| error.downcast_ref().is_some_and(|failure: &Failure| failure.is_json)),
        }
    }
}

/// Returns the kind that an error says itself.
fn kind(error: &(dyn Error + 'static)) -> Option<FailureKind> {
    if error.downcast_ref().is_some_and(kolo_train::Error::follows_wrong_input) {
        return Some(FailureKind::WrongInput);
    }
    if let Some(kolo_recipe::Error::NotTheWriter(_)) = error.downcast_ref() {
        return Some(FailureKind::OtherWriter);
    }
    if let Some(kolo_ddp::Error::Offload { failure, .. }) = error.downcast_ref()
        && failure.fault == StoreFault::NoRoom
    {
        return Some(FailureKind::NoRoom);
    }
    if error.downcast_ref().is_some_and(kolo_ddp::Error::is_divergence) {
        return Some(FailureKind::Diverged);
    }
    if matches!(error.downcast_ref(), Some(kolo_ddp::Error::OwnersLost { .. }))
        || matches!(error.downcast_ref(), Some(kolo_comm::Error::Orphaned))
    {
        return Some(FailureKind::StateLost);
    }
    error.downcast_ref().and_then(LaunchError::kind)
}

/// Joins an error and those of its sources that its message does not contain.
fn sentence(error: &(dyn Error + 'static)) -> String {
    chain(error, <dyn Error>::source).skip(1).fold(error.to_string(), |text, source| {
        let words = source.to_string();
        if text.contains(&words) { text } else { format!("{text}: {words}") }
    })
}

/// Iterates over an error, the `next` of it, the next of that one, and so on.
fn chain<'a>(
    error: &'a (dyn Error + 'static),
    next: fn(&'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)>,
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), move |error| next(*error))
}

/// Returns the error within an error. A transparent error does not return it as its source, so this function
/// unwraps each variant itself.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    use kolo_models::Error as Model;
    use kolo_train::Error as Train;
    match error.downcast_ref() {
        Some(Model::Recipe(error)) => return Some(error),
        Some(Model::Weights(error)) => return Some(error),
        Some(Model::Train(error)) => return Some(error),
        _ => {}
    }
    if let Some(kolo_data::PrefetchError::Data(error)) = error.downcast_ref() {
        return Some(&**error);
    }
    match error.downcast_ref() {
        Some(Train::Training(error) | Train::Refused(error)) => return Some(error),
        Some(Train::CheckpointLost(error) | Train::EndedEarly { cause: Some(error), .. }) => {
            return Some(&**error);
        }
        Some(Train::Recipe(error)) => return Some(error),
        _ => {}
    }
    if let Some(kolo_weights::WeightsError::Recipe(error)) = error.downcast_ref() {
        return Some(error);
    }
    if let Some(kolo_recipe::Error::Refused(error)) = error.downcast_ref() {
        return Some(error);
    }
    match error.downcast_ref() {
        Some(kolo_ddp::Error::Comm(error)) => Some(error),
        Some(kolo_ddp::Error::Binding(error)) => Some(&**error),
        _ => error.source(),
    }
}

fn exit_code(error: &(dyn Error + 'static)) -> Option<u8> {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.code;
    }
    if let Some(error) = error.downcast_ref::<LaunchError>() {
        return Some(error.exit_code());
    }
    match error.downcast_ref() {
        Some(kolo_train::Error::EndedEarly { too_few: None, .. }) => return Some(TERMINATED),
        Some(kolo_train::Error::EndedEarly { .. } | kolo_train::Error::CheckpointLost(_)) => return Some(1),
        _ => {}
    }
    is_input(error).then_some(WRONG_INPUT)
}

/// True if the user's input is at fault.
fn is_input(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(kolo_ddp::Error::is_input)
        || error.downcast_ref().is_some_and(kolo_models::Error::is_input)
        || error.downcast_ref().is_some_and(kolo_train::Error::is_input)
        || error.downcast_ref().is_some_and(kolo_weights::WeightsError::is_input)
        || error.downcast_ref().is_some_and(kolo_recipe::Error::is_input)
        || error.downcast_ref().is_some_and(kolo_comm::Error::is_setting)
        || error.is::<kolo_data::DataError>()
        || error.is::<kolo_ddp::table::ChoiceError>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user's error with another error as its source.
    #[derive(Debug)]
    struct Outer(Box<dyn Error + Send + Sync>);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the epoch failed")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.0)
        }
    }

    fn died() -> kolo_comm::Error {
        kolo_comm::Error::Died { rank: Rank(3) }
    }

    #[test]
    fn the_culprit_is_found_however_deep_it_lies() {
        let ddp = || kolo_ddp::Error::from(died());
        let binding = || kolo_ddp::Error::Binding(Box::new(Outer(Box::new(died()))));
        let errors: [Box<dyn Error + Send + Sync>; 7] = [
            Box::new(died()),
            Box::new(ddp()),
            Box::new(kolo_train::Error::from(ddp())),
            Box::new(kolo_train::Error::CheckpointLost(Box::new(ddp().into()))),
            Box::new(Outer(Box::new(kolo_train::Error::from(ddp())))),
            Box::new(binding()),
            Box::new(Failure::from(ddp()).advise("go on")),
        ];
        for error in errors {
            let ending = Ending::of(&*error);
            assert_eq!((ending.culprit, ending.code), (Some(Rank(3)), 1), "{error:?}");
        }
        let own = kolo_ddp::Error::Setting("no".into());
        assert_eq!(Ending::of(&Outer(Box::new(own))).culprit, None);
    }

    #[test]
    fn sources_follow_in_one_sentence_and_none_twice() {
        let outer = Outer(Box::new(kolo_train::Error::from(died())));
        assert_eq!(Ending::of(&outer).message, "the epoch failed: rank 3 died");
        let lost = kolo_train::Error::CheckpointLost(Box::new(died().into()));
        assert_eq!(sentence(&lost).matches("rank 3 died").count(), 1);
        let advised = Failure::from(died()).advise("`--resume` goes on");
        assert_eq!(sentence(&advised), "rank 3 died\n  `--resume` goes on");
    }

    #[test]
    fn a_run_that_another_process_writes_is_not_helped_by_resuming() {
        let refusal = |kind| kolo_claim::Refusal { folder: "run".into(), kind, by: None };
        let taken = |kind| kolo_train::Error::from(kolo_recipe::Error::NotTheWriter(Box::new(refusal(kind))));
        let fenced = || taken(kolo_claim::RefusalKind::Fenced);
        let early = kolo_train::Error::EndedEarly {
            max_hours: None,
            too_few: Some("few".into()),
            step: 1,
            total: 2,
            kept: "nothing of it is kept".into(),
            cause: Some(Box::new(taken(kolo_claim::RefusalKind::Taken))),
        };
        let of_another = |cause| kolo_train::Error::EndedEarly {
            max_hours: None,
            too_few: Some("rank 0 exited with code 2, wrong input".into()),
            step: 1,
            total: 2,
            kept: String::new(),
            cause,
        };
        let lost = || kolo_ddp::Error::OwnersLost {
            ranks: vec![Rank(1), Rank(2)],
            array: "`velocity`".into(),
            parameter: "w".into(),
        };
        let orphaned = kolo_train::Error::from(kolo_ddp::Error::from(kolo_comm::Error::Orphaned));
        let offload = |fault| {
            let failure = kolo_ddp::optimizer::StoreFailure { fault, problem: "no".into() };
            kolo_ddp::Error::Offload { rank: Rank(0), failure }
        };
        let diverged = kolo_ddp::Error::ValuesNotFinite { step: 3, tensor: "w".into() };
        let kinds: [(Box<dyn Error + Send + Sync>, u8, Option<FailureKind>); 13] = [
            (Box::new(kolo_train::Error::from(diverged)), 1, Some(FailureKind::Diverged)),
            (Box::new(offload(StoreFault::NoRoom)), 1, Some(FailureKind::NoRoom)),
            (Box::new(offload(StoreFault::Lost)), 1, None),
            (Box::new(kolo_train::Error::from(lost())), 1, Some(FailureKind::StateLost)),
            (Box::new(of_another(Some(Box::new(lost().into())))), 1, Some(FailureKind::StateLost)),
            (Box::new(orphaned), 1, Some(FailureKind::StateLost)),
            (Box::new(of_another(None)), 1, Some(FailureKind::WrongInput)),
            (Box::new(of_another(Some(Box::new(died().into())))), 1, None),
            (Box::new(fenced()), 1, Some(FailureKind::OtherWriter)),
            (Box::new(Failure::from(fenced())), 1, Some(FailureKind::OtherWriter)),
            (Box::new(early), 1, Some(FailureKind::OtherWriter)),
            (Box::new(Failure::input("no")), 2, Some(FailureKind::WrongInput)),
            (Box::new(Failure::work("`kolo train --resume run` is a sentence")), 1, None),
        ];
        for (error, code, kind) in kinds {
            let ending = Ending::of(&*error);
            assert_eq!((ending.code, ending.kind), (code, kind), "{error:?}");
        }
    }

    #[test]
    fn the_exit_code_says_whose_turn_it_is() {
        let early = |too_few: Option<String>| kolo_train::Error::EndedEarly {
            max_hours: None,
            too_few,
            step: 1,
            total: 2,
            kept: String::new(),
            cause: None,
        };
        let setting = || kolo_ddp::Error::Setting("no".into());
        let unset = kolo_comm::Error::environment("RANK", "is not set");
        let unusable =
            || kolo_comm::Error::AlgorithmUnusable { algorithm: "ring".into(), reason: "no".into() };
        let no_option =
            kolo_comm::BackendError::Option { backend: "mpi".into(), option: "KOLO_TRANSPORT".into() };
        let trained = |error: kolo_comm::Error| kolo_train::Error::from(kolo_ddp::Error::from(error));
        assert!(trained(unusable()).is_input() && !trained(died()).is_input());
        let codes: [(Box<dyn Error + Send + Sync>, u8); 14] = [
            (Box::new(Failure::input("no")), 2),
            (Box::new(Failure::work("no")), 1),
            (Box::new(Failure::terminated("no")), 143),
            (Box::new(Outer(Box::new(Failure::input("no")))), 2),
            (Box::new(early(None)), 143),
            (Box::new(early(Some("few".into()))), 1),
            (Box::new(kolo_train::Error::from(setting())), 2),
            (Box::new(Failure::from(setting())), 2),
            (Box::new(kolo_train::Error::from(unset)), 2),
            (Box::new(unusable()), 2),
            (Box::new(trained(unusable())), 2),
            (Box::new(trained(kolo_comm::Error::Backend(no_option))), 2),
            (Box::new(trained(died())), 1),
            (Box::new(kolo_train::Error::DataEnded), 1),
        ];
        for (error, code) in codes {
            assert_eq!(Ending::of(&*error).code, code, "{error:?}");
        }
    }
}
