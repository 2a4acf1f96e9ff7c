//! Functions that compute weights must give the same bits on every platform. Those of the standard library
//! depend on the platform, and differ in the last bit; the crate `libm` is the same code everywhere. Square
//! roots and fused multiply-adds have only one correct rounding.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates whose numbers become weights.
const CRATES: [&str; 15] = [
    "burn-flex-nn", "kolo-burn", "kolo-comm", "kolo-data", "kolo-ddp", "kolo-metrics", "kolo-models",
    "kolo-optim", "kolo-recipe", "kolo-reduction", "kolo-sampler", "kolo-step", "kolo-sync", "kolo-train",
    "kolo-weights",
];

const FUNCTIONS: [&str; 27] = [
    "powf", "powi", "exp", "exp2", "exp_m1", "ln", "ln_1p", "log", "log2", "log10", "sin", "cos", "tan",
    "sin_cos", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "cbrt",
    "hypot", "gamma",
];

/// Collects the files below a folder that are compiled into a library, without its test files.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match path.is_dir() {
            true if name != "tests" => sources(&path, into),
            false
                if name != "tests"
                    && !name.ends_with("_tests")
                    && path.extension().is_some_and(|end| end == "rs") =>
            {
                into.push(path)
            }
            _ => {}
        }
    }
}

/// Returns the functions that a library's text calls, with their lines. Its tests stand at the end.
fn called(text: &str) -> Vec<(usize, &'static str)> {
    let library = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let named = |line: &str, path: String| {
        let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        line.split(path.as_str()).skip(1).any(|rest| !goes_on(rest))
    };
    let calls = |line: &str, name: &str| {
        let paths = [format!("f64::{name}"), format!("f32::{name}")];
        line.contains(&format!(".{name}(")) || paths.into_iter().any(|path| named(line, path))
    };
    let lines = library.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines
        .flat_map(|(n, line)| {
            FUNCTIONS.into_iter().filter(move |name| calls(line, name)).map(move |name| (n + 1, name))
        })
        .collect()
}

#[test]
fn weights_are_computed_by_the_same_code_everywhere() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut seen, mut found) = (0, Vec::new());
    for name in CRATES {
        let mut files = Vec::new();
        sources(&crates.join(name).join("src"), &mut files);
        seen += files.len();
        for file in files {
            for (line, function) in called(&fs::read_to_string(&file).unwrap()) {
                found.push(format!("{}:{line} calls `{function}`", file.display()));
            }
        }
    }
    assert!(seen > 200, "{seen} files");
    assert!(
        found.is_empty(),
        "call the function of the crate `libm`, whose bits are the same everywhere:\n{}",
        found.join("\n")
    );
}

#[test]
fn calls_are_seen_and_comments_are_not() {
    let text = "let a = x.powf(2.0);\n// y.sin()\nlet b = y.sine();\nlet c = values.map(f64::ln);\n#[cfg(test)]\nmod tests {\nz.cos()}";
    assert_eq!(called(text), [(1, "powf"), (4, "ln")]);
}
