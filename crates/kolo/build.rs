//! Passes on what `kolo --version` shows: the commit, the features and the target.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let commit = commit_of_package(&package).or_else(|| commit_of_repository(&package));
    println!("cargo:rustc-env=BUILD_COMMIT={}", commit.unwrap_or_default());
    println!("cargo:rustc-env=BUILD_FEATURES={}", features());
    println!("cargo:rustc-env=BUILD_TARGET={}", env::var("TARGET").unwrap_or_default());
}

/// Returns the commit that a published package was made of: `cargo package` writes it into the package.
fn commit_of_package(package: &Path) -> Option<String> {
    let info = std::fs::read_to_string(package.join(".cargo_vcs_info.json")).ok()?;
    let (_, rest) = info.split_once("\"sha1\"")?;
    let commit = rest.split('"').nth(1)?;
    Some(commit.chars().take(SHOWN).collect())
}

/// Returns the commit of Kolo's own repository, and asks for another build when another one is checked out.
/// A repository that only surrounds a copy of the sources says nothing about them.
fn commit_of_repository(package: &Path) -> Option<String> {
    let root = package.parent()?.parent()?.canonicalize().ok()?;
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(&root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim_end().to_owned())
    };
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD".into(), "logs/HEAD".into(), "packed-refs".into()].into_iter().chain(branch) {
        let file = root.join(git(&["rev-parse", "--git-path", &name])?);
        // Cargo runs the script in every build if a named file is missing, as that of a packed branch is.
        if file.exists() {
            println!("cargo:rerun-if-changed={}", file.display());
        }
    }
    git(&["rev-parse", &format!("--short={SHOWN}"), "HEAD"])
}

/// Digits of a commit that are shown.
const SHOWN: usize = 10;

fn features() -> String {
    let name = |(variable, _): (String, String)| {
        let name = variable.strip_prefix("CARGO_FEATURE_")?.to_lowercase().replace('_', "-");
        (name != "default").then_some(name)
    };
    let mut names: Vec<String> = env::vars().filter_map(name).collect();
    names.sort();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
