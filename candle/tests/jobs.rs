//! The examples, started by the launcher: one, two and three workers end in the same weights, and so do those
//! of which one was killed.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use kolo_launch::Job;

/// Makes a run of this program a launcher: the number of workers.
const LAUNCHER: &str = "KOLO_CANDLE_LAUNCHER";
/// Command of each worker.
const WORKER: &str = "KOLO_CANDLE_WORKER";

fn main() -> ExitCode {
    if let Ok(workers) = std::env::var(LAUNCHER) {
        let command = ["sh", "-c", &std::env::var(WORKER).unwrap()];
        let job = Job { restarts: 0, ..Job::new(command, workers.parse().unwrap()) };
        return match kolo_launch::run(&job) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    ends_in_the_same_weights("images", "1");
    ends_in_the_same_weights("trainer", "");
    println!("test result: ok. 8 jobs ended in the weights that they should have");
    ExitCode::SUCCESS
}

/// Starts an example with an argument on one, two and three workers, and on two of which one is killed.
fn ends_in_the_same_weights(example: &str, argument: &str) {
    let program = program(example);
    let program = program.display();
    // Each job in a folder of its own: the trainer writes to its working directory.
    let place = tempfile::tempdir().unwrap();
    let inside = |job: &str| {
        let folder = place.path().join(job);
        std::fs::create_dir(&folder).unwrap();
        format!("cd {}; export KOLO_RUN_FOLDER={}", folder.display(), folder.join("run").display())
    };
    let undisturbed = format!("exec {program} {argument}");
    // The number of candle's threads, which divide the work of one operation, changes no bit either.
    let [one, two, three] = [1, 2, 3].map(|n| {
        ended(n, &format!("{}; export RAYON_NUM_THREADS={n}; {undisturbed}", inside(&n.to_string()))).0
    });
    assert_eq!((&two, &three), (&one, &one));
    // Rank 0 has made some steps when rank 1 is killed.
    let killed = format!(
        r#"{place}; if [ "$RANK" = 1 ]; then echo $$ > pid; {undisturbed}; fi
        {program} {argument} | while read -r line; do
            echo "$line"
            case "$line" in "step 10:"*) kill -9 "$(cat pid)" ;; esac
        done"#,
        place = inside("killed"),
    );
    let (survived, messages) = ended(2, &killed);
    assert!(messages.contains("was killed by SIGKILL"), "{messages}");
    assert_eq!(survived, one, "{example}");
}

/// An example, which cargo builds beside the tests.
fn program(example: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let path = program.parent().unwrap().parent().unwrap().join("examples").join(example);
    assert!(path.is_file(), "{} is missing: `cargo build --examples`", path.display());
    path
}

/// Runs a job; returns the hash that it prints at the end, and what the launcher says.
fn ended(workers: usize, command: &str) -> (String, String) {
    let mut launcher = Command::new(std::env::current_exe().unwrap());
    launcher.env(LAUNCHER, workers.to_string()).env(WORKER, command);
    let output = launcher.output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{workers} workers: {text}{errors}");
    let hash = text.lines().find_map(|line| Some(line.split_once("weights ")?.1.to_owned()));
    (hash.unwrap_or_else(|| panic!("{workers} workers: {text}{errors}")), errors.into_owned())
}
