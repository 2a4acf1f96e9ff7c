//! Tests the dashboard on a real terminal, which must be restored. The program on it is this test binary.

use std::process::Command;

use kolo_dashboard::{Painter, RunState, Screen};
use kolo_run_folder::StepRow;
use kolo_testing::PseudoTerminal;

/// Environment variable that selects how the program on the terminal ends.
const ENDING: &str = "KOLO_TEST_ENDING";

/// Switch to the alternate screen, and back.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// Program on the terminal; does nothing in a test run without [`ENDING`].
#[test]
fn program() {
    let Ok(ending) = std::env::var(ENDING) else { return };
    let screen = Screen::hold().unwrap();
    let run = RunState::new("model-on-data".into(), "images".into(), 1, 0, 8);
    let painter = Painter::start(screen.path(), run).unwrap();
    painter.update(|run| (0..4).for_each(|number| run.step(step(number))));
    println!("printed meanwhile");
    eprintln!("logged meanwhile");
    if ending == "panic" {
        panic!("an end by panic");
    }
    drop(painter);
    drop(screen);
    println!("printed after it");
}

fn step(number: u64) -> StepRow {
    StepRow { step: number, loss: Some(1.0), samples: 8.0, seconds: 0.01, ..StepRow::default() }
}

/// Returns all output on the terminal after an ending of the program; the terminal's modes must be restored.
fn after(ending: &str, last_output: &str) -> String {
    let terminal = PseudoTerminal::open();
    let before = format!("{:?}", terminal.modes());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "program", "--nocapture"]).env(ENDING, ending);
    let mut program = terminal.spawn(&mut command);
    terminal.wait_for(ENTER);
    assert_eq!(program.wait().unwrap().success(), ending != "panic");
    let text = terminal.wait_for(last_output);
    assert_eq!(format!("{:?}", terminal.modes()), before);
    text
}

fn place(text: &str, of: &str) -> usize {
    text.find(of).unwrap_or_else(|| panic!("`{of}` is not on the terminal: {text}"))
}

#[test]
fn at_the_end_the_terminal_is_as_before_and_what_was_printed_comes() {
    let text = after("end", "printed after it");
    let order = [ENTER, "model-on-data", "4/8", LEAVE, "printed meanwhile", "logged meanwhile"];
    let places = order.map(|part| place(&text, part));
    assert!(places.is_sorted(), "{places:?}: {text}");
}

#[test]
fn after_a_panic_the_terminal_is_as_before_and_the_panic_is_printed() {
    let text = after("panic", "an end by panic");
    let places = [ENTER, LEAVE, "logged meanwhile", "an end by panic"].map(|part| place(&text, part));
    assert!(places.is_sorted(), "{places:?}: {text}");
}
