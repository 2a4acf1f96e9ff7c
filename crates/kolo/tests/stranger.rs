//! The path of a new user: README's lines in an empty cargo project, its program, `kolo launch`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const README: &str = include_str!("../../../README.md");
const FRONT_PAGE: &str = include_str!("../README.md");

/// Returns the first code block in that language below the heading.
fn block(language: &str) -> &'static str {
    let section = README.split("\n## Train your own model\n").nth(1).expect("README has that section");
    let fence = format!("```{language}\n");
    let code = section.split(&fence).nth(1).unwrap_or_else(|| panic!("no block of {language}"));
    code.split("```").next().expect("it ends")
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the profiles of this workspace, with which the project shares compiled crates: those of others, since
/// Cargo builds a crate of Kolo anew for another workspace, and quickest without optimizing it.
fn profiles() -> String {
    let manifest = fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let first = manifest.find("[profile.").expect("the workspace has profiles");
    let sections = manifest[first..].split("\n\n");
    let of_others =
        sections.filter(|section| !section.contains(".kolo-") && !section.contains(".burn-flex-nn]"));
    of_others.collect::<Vec<_>>().join("\n\n")
}

/// Features that this workspace enables, and README's program does not, in crates below all of Burn: with
/// them Burn is not built again. `cargo tree -f "{p} {f}"` of both shows these features.
const SHARED_FEATURES: &str = r#"
ahash = "0.8"
crossbeam-utils = "0.8"
once_cell = "1"
rustix = { version = "1", features = ["pty"] }
serde = { version = "1", features = ["rc"] }
"#;

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {words}");
    output
}

#[test]
fn the_front_page_has_the_program_of_the_readme() {
    assert!(FRONT_PAGE.contains(block("rust,no_run")) && FRONT_PAGE.contains(block("toml")));
}

#[test]
#[ignore = "slow: bash .ci/slow runs it"]
fn the_readmes_program_runs_as_printed() {
    let place = tempfile::tempdir().unwrap();
    let project = place.path().join("my-trainer");
    fs::create_dir_all(project.join("src")).unwrap();
    let local = format!("path = {:?}", workspace().join("crates/kolo"));
    let dependencies = block("toml").replace(r#"git = "https://github.com/kolo-rs/kolo""#, &local);
    assert!(dependencies.contains(&local), "README names the repository");
    let package = "[package]\nname = \"my-trainer\"\nedition = \"2024\"\n\n";
    let manifest = format!("{package}{dependencies}{SHARED_FEATURES}\n[workspace]\n\n{}", profiles());
    fs::write(project.join("Cargo.toml"), manifest).unwrap();
    fs::write(project.join("src/main.rs"), block("rust,no_run")).unwrap();
    // The same versions as here.
    fs::copy(workspace().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();

    // Beside this test's own program: <target>/debug/deps/stranger-….
    let target = Path::new(env!("CARGO_BIN_EXE_kolo")).parent().unwrap().parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    // What Cargo says about this crate to its tests would have build scripts run again.
    let of_cargo = std::env::vars_os().map(|(name, _)| name);
    let is_about = |name: &str| name.starts_with("CARGO_MANIFEST") || name.starts_with("CARGO_PKG");
    for name in of_cargo.filter(|name| is_about(&name.to_string_lossy())) {
        build.env_remove(name);
    }
    let built = run(build.arg("build").current_dir(&project).env("CARGO_TARGET_DIR", target));
    // Another feature would build Burn a second time, which takes minutes. `cargo test -p kolo` has others.
    if std::env::var_os("CI").is_some() {
        let built = String::from_utf8_lossy(&built.stderr).into_owned();
        assert!(!built.contains("Compiling burn-tensor"), "Burn is built again: {built}");
    }
    let program = target.join("debug/my-trainer");

    let mut weights = Vec::new();
    for nproc in ["1", "2"] {
        let folder = place.path().join(nproc);
        fs::create_dir(&folder).unwrap();
        let mut launch = Command::new(env!("CARGO_BIN_EXE_kolo"));
        let output = run(launch.args(["launch", "--nproc", nproc, "--"]).arg(&program).current_dir(&folder));
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        let accuracy = words.lines().find_map(|line| line.split("test accuracy").nth(1));
        let accuracy: f64 = accuracy.unwrap().trim().trim_end_matches(" %").parse().unwrap();
        assert!(accuracy > 75.0, "{words}");
        let summary = fs::read_to_string(folder.join("runs/mlp/summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        weights.push(summary["weights_sha256"].clone());
    }
    assert_eq!(weights[0], weights[1]);
}
