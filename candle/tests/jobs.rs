//! The example, started by the launcher: one, two and three workers end in the same weights, and so do those
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
    let undisturbed = format!("exec {} 1", example().display());
    // The number of candle's threads, which divide the work of one operation, changes no bit either.
    let [one, two, three] =
        [1, 2, 3].map(|n| ended(n, &format!("export RAYON_NUM_THREADS={n}; {undisturbed}")).0);
    assert_eq!((&two, &three), (&one, &one));
    // Rank 0 has made some steps when rank 1 is killed.
    let place = tempfile::tempdir().unwrap();
    let killed = format!(
        r#"cd {place}; if [ "$RANK" = 1 ]; then echo $$ > pid; {undisturbed}; fi
        {example} 1 | while read -r line; do
            echo "$line"
            case "$line" in "step 10:"*) kill -9 "$(cat pid)" ;; esac
        done"#,
        place = place.path().display(),
        example = example().display()
    );
    let (survived, messages) = ended(2, &killed);
    assert!(messages.contains("was killed by SIGKILL"), "{messages}");
    assert_eq!(survived, one);
    println!("test result: ok. 4 jobs ended in the weights {one}");
    ExitCode::SUCCESS
}

/// The example, which cargo builds beside the tests.
fn example() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let path = program.parent().unwrap().parent().unwrap().join("examples/images");
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
