//! The error file: JSON that a failing worker writes and the launcher reads.
//!
//! Its path is in `TORCHELASTIC_ERROR_FILE`, as for torchrun. Both formats of torch are supported, so that
//! Kolo's workers can fail under torchrun, and PyTorch's under Kolo.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use kolo_comm::{Rank, env};
use kolo_run_folder::in_lines;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::named_rank::named_rank;

/// Process id of the launcher that shows its children's errors.
pub(crate) const LAUNCHER_PID: &str = "KOLO_LAUNCHER_PID";
/// Time for which a report counts if the worker itself may not have written it. A program that the worker
/// runs inherits the variable, and its failure need not be the reason for the worker's later end.
const COUNTS_FOR: Duration = Duration::from_secs(60);
/// Prefix of the report of a panic.
const PANIC: &str = "panic: ";
/// Maximum number of bytes read from an error file, which holds a message for people.
const MAX_FILE: u64 = 1 << 20;
const MAX_MESSAGE: usize = 16 << 10;

/// Kind of a failure that no replacement of the worker mends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The user's input is wrong: a data file, an option, a setting. Every worker that meets it fails.
    WrongInput,
    /// Another process writes the run folder.
    OtherWriter,
    /// The worker's host has no room for it, such as a full disk. At the start the job ends; later the other
    /// workers may continue.
    NoRoom,
    /// The loss, the gradient or the values are not finite any more, on all workers.
    Diverged,
    /// Workers have died with whom the job's state is lost, or a part of it. A checkpoint may have it.
    StateLost,
}

/// The error of a worker that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerError {
    /// The error message.
    pub message: String,
    /// The responsible rank, if it is another one.
    pub culprit: Option<Rank>,
    /// The kind that the worker reported.
    pub kind: Option<FailureKind>,
    /// True if the worker wrote the message into its error file. Otherwise these are its last lines on
    /// standard error, which need not be the reason why it failed.
    pub reported: bool,
}

/// Writes this worker's error file, which gives the launcher the reason of the failure; called before exit.
///
/// `culprit` is the rank responsible, if it is another one (a peer that died, or did not answer). The first
/// report of a process counts and later ones are dropped, because they are consequences. A report of a panic
/// (it begins with `panic: `) that the process has survived is different: the error that ends the process
/// replaces and quotes it. Does nothing without a launcher, that is if `TORCHELASTIC_ERROR_FILE` is not set.
///
/// # Errors
///
/// The file cannot be written. A worker that is failing anyway may ignore this.
///
/// ```
/// # fn train() -> Result<(), String> { Ok(()) }
/// if let Err(error) = train() {
///     let _ = kolo_launch::report_failure(&error, None);
///     eprintln!("error: {error}");
///     std::process::exit(1);
/// }
/// ```
pub fn report_failure(error: &dyn Display, culprit: Option<Rank>) -> io::Result<()> {
    report_failure_of_kind(error, culprit, None)
}

/// Does the same as [`report_failure`], and reports the kind of the failure. The launcher ends an elastic job
/// at once after a failure by [wrong input](FailureKind::WrongInput), [divergence](FailureKind::Diverged), or
/// with the job's [state](FailureKind::StateLost), because a replacement would fail as well.
///
/// # Errors
///
/// The file cannot be written.
pub fn report_failure_of_kind(
    error: &dyn Display,
    culprit: Option<Rank>,
    kind: Option<FailureKind>,
) -> io::Result<()> {
    let Some(file) = std::env::var_os(env::ERROR_FILE).filter(|file| !file.is_empty()) else {
        return Ok(());
    };
    let rank = std::env::var(env::RANK).ok().and_then(|text| text.parse().ok()).map(Rank);
    write(Path::new(&file), &error.to_string(), rank, culprit, kind)
}

/// Returns true if this process was started by Kolo's launcher, which shows its [reports](report_failure).
/// Other launchers may show nothing, and the variable may be inherited from an earlier worker.
pub fn launcher_shows_errors() -> bool {
    let launcher = std::env::var(LAUNCHER_PID).ok().and_then(|text| text.parse::<u32>().ok());
    let has_file = std::env::var_os(env::ERROR_FILE).is_some_and(|file| !file.is_empty());
    has_file && launcher == Some(std::os::unix::process::parent_id())
}

fn write(
    file: &Path,
    message: &str,
    rank: Option<Rank>,
    culprit: Option<Rank>,
    kind: Option<FailureKind>,
) -> io::Result<()> {
    let outlived = if message.starts_with(PANIC) { None } else { own_panic(file) };
    let message = match &outlived {
        Some(panic) if !message.contains(message_of(panic)) => format!("{message}\nbefore it: {panic}"),
        _ => message.into(),
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let report = json!({
        "rank": rank.map(|rank| rank.0),
        "pid": std::process::id(),
        "message": message,
        "culprit": culprit.map(|rank| rank.0),
        "kind": kind,
        // Seconds since 1970, under the name by which torchrun finds the first failure.
        "timestamp": now,
    });
    // The file must appear whole or not at all, because a worker may be killed while it writes.
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(report.to_string().as_bytes())?;
    if outlived.is_some() {
        return draft.persist(file).map(drop).map_err(|error| error.error);
    }
    match draft.persist_noclobber(file) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}

/// Returns the panic that this process has reported and then survived, such as a caught or a thread's panic.
fn own_panic(file: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(file).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    let report: Value = serde_json::from_slice(&bytes).ok()?;
    let message = report["message"].as_str().filter(|message| message.starts_with(PANIC))?;
    (report["pid"].as_u64() == Some(std::process::id().into())).then(|| message.into())
}

/// Returns a panic's message without the location: `panic: panicked at a.rs:1:2:\nits message`.
fn message_of(panic: &str) -> &str {
    panic.split_once('\n').map_or(panic, |(_, text)| text).trim()
}

/// Reads the error file of an ended worker. `None` if there is none, it has no readable text, or another
/// process wrote it long before the end.
pub(crate) fn read(file: &Path, worker: i32, ended: SystemTime) -> Option<WorkerError> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(file).ok()?;
    let written = file.metadata().and_then(|file| file.modified()).ok()?;
    file.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    is_of(&bytes, worker, ended.duration_since(written).unwrap_or_default()).then(|| parse(&bytes))?
}

/// Returns true if a report may be the reason of a worker's end, `later` after it.
fn is_of(bytes: &[u8], worker: i32, later: Duration) -> bool {
    let report = serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    report["pid"].as_i64() == Some(worker.into()) || later <= COUNTS_FOR
}

fn parse(bytes: &[u8]) -> Option<WorkerError> {
    let (message, culprit, kind) = match serde_json::from_slice::<Value>(bytes) {
        Ok(report) => {
            let message = &report["message"];
            // torch nests the message of an exception: {"message": {"message": "ValueError: …", …}}
            let text = message.as_str().or_else(|| message["message"].as_str())?;
            let culprit = report["culprit"].as_u64().and_then(|rank| usize::try_from(rank).ok());
            let kind = FailureKind::deserialize(&report["kind"]).ok();
            (text.to_owned(), culprit.map(Rank), kind)
        }
        // A script may also run `echo why > $TORCHELASTIC_ERROR_FILE`.
        Err(_) => {
            let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains(unprintable))?;
            (text.to_owned(), None, None)
        }
    };
    let message = printable(message.trim());
    // A panic quotes the unhandled error, but not its culprit.
    let culprit = culprit.or_else(|| message.starts_with(PANIC).then(|| named_rank(&message))?);
    (!message.is_empty()).then_some(WorkerError { message, culprit, kind, reported: true })
}

/// Returns the text in a form for the launcher's terminal: without escape sequences, and of limited length.
pub(crate) fn printable(text: &str) -> String {
    let cut = text.floor_char_boundary(MAX_MESSAGE);
    let end = if cut < text.len() { "…" } else { "" };
    in_lines(&text[..cut]) + end
}

fn unprintable(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(message: &str, culprit: Option<usize>) -> Option<WorkerError> {
        Some(WorkerError { message: message.into(), culprit: culprit.map(Rank), kind: None, reported: true })
    }

    #[test]
    fn reports_are_read_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("error.json");
        write(&file, "rank 1 died\n\"quoted\"", Some(Rank(0)), Some(Rank(1)), None).unwrap();
        let (own, now) = (std::process::id() as i32, SystemTime::now());
        assert_eq!(read(&file, own, now), error("rank 1 died\n\"quoted\"", Some(1)));
        let later = now + 2 * COUNTS_FOR;
        assert_eq!(read(&file, own, later), error("rank 1 died\n\"quoted\"", Some(1)));
        assert_eq!(read(&file, own + 1, now), error("rank 1 died\n\"quoted\"", Some(1)), "sh -c does that");
        assert_eq!(read(&file, own + 1, later), None, "a child's, which the worker has survived");
        let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(json["rank"], 0);
        assert!(json["timestamp"].as_f64().unwrap() > 1.7e9);
    }

    #[test]
    fn the_first_report_counts_and_no_draft_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("error.json");
        write(&file, "the cause", None, None, None).unwrap();
        write(&file, "what followed", None, Some(Rank(3)), None).unwrap();
        assert_eq!(read(&file, 1, SystemTime::now()), error("the cause", None));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_takes_the_place_of_a_panic_that_its_process_has_outlived() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("error.json");
        let own = std::process::id().cast_signed();
        let message = || read(&file, own, SystemTime::now()).unwrap().message;
        let panic = "panic: panicked at a.rs:1:2:\nthis file is cut off";
        write(&file, panic, None, None, None).unwrap();
        write(&file, "panic: panicked at b.rs:3:4:\nas well", None, None, None).unwrap();
        assert_eq!(message(), panic, "the first of them");
        write(&file, "a thread has ended", None, None, None).unwrap();
        assert_eq!(message(), format!("a thread has ended\nbefore it: {panic}"));
        write(&file, "what followed", None, None, None).unwrap();
        assert!(message().starts_with("a thread has ended"), "{}", message());
        std::fs::remove_file(&file).unwrap();
        write(&file, panic, None, None, None).unwrap();
        write(&file, "samples 3, 4: this file is cut off", None, None, None).unwrap();
        assert_eq!(message(), "samples 3, 4: this file is cut off");
        // The panic of a program that the worker ran is not its own.
        let other = format!("{{\"message\": \"panic: x\", \"pid\": {}}}", own + 1);
        std::fs::write(&file, &other).unwrap();
        write(&file, "an error", None, None, None).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), other);
    }

    #[test]
    fn a_folder_that_is_gone_is_an_error_not_a_panic() {
        let folder = tempfile::tempdir().unwrap();
        assert!(write(&folder.path().join("gone/error.json"), "x", None, None, None).is_err());
    }

    #[test]
    fn formats_of_torch_and_scripts_are_read() {
        let torch = br#"{"message": {"message": "ValueError: bad", "extraInfo": {"timestamp": "1"}}}"#;
        assert_eq!(parse(torch), error("ValueError: bad", None));
        assert_eq!(parse(br#"{"message": "flat", "culprit": 2}"#), error("flat", Some(2)));
        assert_eq!(parse(br#"{"message": "odd", "culprit": "two"}"#), error("odd", None));
        assert_eq!(parse(b"no disk space\n"), error("no disk space", None));
        let panic =
            br#"{"message": "panic: panicked at a.rs:1:2:\nDied { rank: Rank(3) }", "culprit": null}"#;
        assert_eq!(parse(panic), error("panic: panicked at a.rs:1:2:\nDied { rank: Rank(3) }", Some(3)));
    }

    #[test]
    fn the_kind_is_read_as_written_and_an_unknown_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let kinds = [
            FailureKind::WrongInput,
            FailureKind::OtherWriter,
            FailureKind::Diverged,
            FailureKind::StateLost,
        ];
        for kind in [None].into_iter().chain(kinds.map(Some)) {
            let file = folder.path().join(format!("{kind:?}.json"));
            write(&file, "no", None, None, kind).unwrap();
            assert_eq!(read(&file, 1, SystemTime::now()).unwrap().kind, kind);
        }
        let kind = |text: &str| parse(text.as_bytes()).unwrap().kind;
        assert_eq!(kind(r#"{"message": "no", "kind": "wrong_input"}"#), Some(FailureKind::WrongInput));
        assert_eq!(kind(r#"{"message": "no", "kind": "of a later version"}"#), None);
    }

    #[test]
    fn garbage_is_no_report() {
        for garbage in
            [&b""[..], b"  \n", b"\xff\xfe\x00", b"\0\0", b"{}", b"[1, 2]", b"{\"message\": 3}", b"null"]
        {
            assert_eq!(parse(garbage), None, "{garbage:?}");
        }
        assert_eq!(read(Path::new("/nonexistent/report"), 1, SystemTime::now()), None);
    }

    #[test]
    fn messages_are_fit_for_a_terminal() {
        assert_eq!(parse(b"{\"message\": \"\\u001b[31mred\\nline\"}"), error("\\u{1b}[31mred\nline", None));
        let long = "ä".repeat(MAX_MESSAGE);
        let shown = parse(long.as_bytes()).unwrap().message;
        assert!(shown.len() <= MAX_MESSAGE + '…'.len_utf8() && shown.ends_with('…'));
    }
}
