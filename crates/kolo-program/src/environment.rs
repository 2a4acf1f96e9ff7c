//! Check of the variables that begin with `KOLO_`, before a program does anything else.

use std::ffi::OsStr;

use kolo_comm::{Error, env};
use kolo_elastic::{MEMBER, STOP_ON, StopSignal};
use kolo_recipe::nearest;
use kolo_train::LOG_FORMAT;

/// All variables that Kolo reads.
const KNOWN: &[&str] = &[
    "KOLO_ALGORITHM", "KOLO_BACKEND", "KOLO_CHECK_TRIAL", "KOLO_CHECK_VERDICT", "KOLO_COORDINATOR",
    "KOLO_DASHBOARD_TTY", "KOLO_ENCRYPT", "KOLO_HOST_TIMEOUT", "KOLO_IFACE", "KOLO_LAUNCHER_PID",
    "KOLO_LOG_FORMAT", "KOLO_MEMBER", "KOLO_MOST_WORKERS", "KOLO_NCCL_LIBRARY", "KOLO_NODE",
    "KOLO_RUN_FOLDER", "KOLO_SERVER", "KOLO_SERVERS", "KOLO_STOP_ON", "KOLO_STREAMS", "KOLO_TCP_CONGESTION",
    "KOLO_TCP_DELAY_US", "KOLO_TIMEOUT", "KOLO_TOKEN", "KOLO_TOKEN_FILE", "KOLO_TRANSPORT",
    "KOLO_VERIFY_AIMS", "KOLO_VERIFY_BUCKET_CAP_MB", "KOLO_VERIFY_END_ROUND", "KOLO_VERIFY_FILE",
    "KOLO_VERIFY_RESUME", "KOLO_VERIFY_STEPS", "KOLO_VERIFY_TUNE",
];

/// Variables whose values may be any bytes: a path, or the token.
const BYTES: [&str; 5] =
    ["KOLO_TOKEN", "KOLO_TOKEN_FILE", "KOLO_RUN_FOLDER", "KOLO_DASHBOARD_TTY", "KOLO_VERIFY_AIMS"];

/// Refuses wrong values that nothing else refuses, and warns of names that look misspelled: once, in the
/// launcher or on rank 0.
///
/// # Errors
///
/// Names the variable, its value, and the right ones.
pub fn check() -> Result<(), Error> {
    let is_first = env::rank_and_world_size().is_ok_and(|found| found.is_none_or(|(rank, _)| rank.0 == 0));
    let warns = is_first && std::env::var_os(MEMBER).is_none();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with("KOLO_")) else { continue };
        check_value(name, &value)?;
        if let Some(warning) = misspelled(name).filter(|_| warns) {
            log::warn!("{warning}");
        }
    }
    Ok(())
}

fn check_value(name: &str, value: &OsStr) -> Result<(), Error> {
    let wrong = |problem: String| Err(Error::environment(name, problem));
    match (name, value.to_str()) {
        (STOP_ON, Some(text)) if StopSignal::list(text).is_err() => {
            wrong(format!("is `{text}`; it must be usr1, usr2 or both, as usr1,usr2"))
        }
        (LOG_FORMAT, Some(text)) if !["", "text", "json"].contains(&text) => {
            wrong(format!("is `{text}`; it must be text or json"))
        }
        (_, None) if KNOWN.contains(&name) && !BYTES.contains(&name) => {
            wrong(format!("is `{}`; it must be text in UTF-8", value.to_string_lossy()))
        }
        _ => Ok(()),
    }
}

/// Describes a name that Kolo does not know and that is close to a known one.
fn misspelled(name: &str) -> Option<String> {
    let known = nearest(name, KNOWN.iter().copied()).filter(|known| *known != name)?;
    Some(format!("the variable {name} has no effect; do you mean {known}?"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::*;

    #[test]
    fn wrong_values_are_refused_with_those_that_are_right() {
        let check =
            |name, value: &[u8]| check_value(name, OsStr::from_bytes(value)).map_err(|e| e.to_string());
        for (name, value) in [
            (STOP_ON, &b"usr1,SIGUSR2"[..]),
            (STOP_ON, b""),
            (LOG_FORMAT, b"json"),
            (LOG_FORMAT, b""),
            ("KOLO_TOKEN_FILE", b"/\xff"),
            ("KOLO_MINE", b"\xff"),
        ] {
            assert_eq!(check(name, value), Ok(()), "{name}");
        }
        let refused = |name, value: &[u8]| check(name, value).unwrap_err();
        assert!(
            refused(STOP_ON, b"kill").ends_with("is `kill`; it must be usr1, usr2 or both, as usr1,usr2")
        );
        assert!(refused(LOG_FORMAT, b"xml").ends_with("KOLO_LOG_FORMAT is `xml`; it must be text or json"));
        assert!(refused("KOLO_STREAMS", b"\xff").ends_with("it must be text in UTF-8"));
    }

    #[test]
    fn only_names_that_look_misspelled_are_warned_of() {
        assert_eq!(
            misspelled("KOLO_STOPON").as_deref(),
            Some("the variable KOLO_STOPON has no effect; do you mean KOLO_STOP_ON?")
        );
        for name in ["KOLO_STREAMS", "KOLO_TOKEN", "KOLO_MY_OWN_SETTING"] {
            assert_eq!(misspelled(name), None, "{name}");
        }
    }

    #[test]
    fn the_list_has_each_variable_of_the_sources() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found = BTreeSet::new();
        collect(&crates, &mut found);
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), KNOWN);
    }

    /// Collects the names in constants of all crates' sources.
    fn collect(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && !["tests", "target"].iter().any(|name| path.ends_with(name)) {
                collect(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let constants =
                    text.lines().filter(|line| line.contains("const ") && line.contains(": &str"));
                let names = constants.filter_map(|line| line.split_once("\"KOLO_")?.1.split_once('"'));
                let names = names.map(|(name, _)| format!("KOLO_{name}"));
                found.extend(names.filter(|name| !name.contains("_TEST_")));
            }
        }
    }
}
