//! Source of the token by which the workers of a job recognize each other (see `kolo_comm::Token`).
//!
//! The token reaches the workers only through their environment, which only the same user can read. It never
//! appears on a command line or in the log.

use std::ffi::OsString;
use std::fmt;
use std::net::ToSocketAddrs;
use std::path::PathBuf;

use kolo_comm::{Token, env};

use crate::error::LaunchError;
use crate::job::Job;

#[derive(Clone)]
pub(crate) enum TokenSource {
    /// The workers inherit it in a variable, or the job has none.
    Inherited,
    /// It was generated for this launch.
    Generated(String),
    /// This file contains it.
    File(PathBuf),
}

/// Selects the source of the workers' token. `inherited` returns true for variables of the launcher's own
/// environment.
///
/// Generates a token for workers of one node. Several nodes cannot share a generated one: the user provides
/// one, or the nodes are one machine.
pub(crate) fn choose(job: &Job, inherited: impl Fn(&str) -> bool) -> Result<TokenSource, LaunchError> {
    let given = |name: &str| inherited(name) || job.env.iter().any(|(n, _)| n == name);
    if let Some(file) = &job.token_file {
        let invalid = |what: String| LaunchError::Invalid { what, remedy: "check --token-file".into() };
        Token::from_file(file).map_err(|error| invalid(error.to_string()))?;
        // Workers may change their working directory before they read it.
        let file = std::path::absolute(file).map_err(|error| invalid(error.to_string()))?;
        return Ok(TokenSource::File(file));
    }
    if given(env::TOKEN) || given(env::TOKEN_FILE) {
        return Ok(TokenSource::Inherited);
    }
    if job.nnodes == 1 {
        let made = Token::generate().map_err(std::io::Error::other);
        return made
            .map(TokenSource::Generated)
            .map_err(|cause| LaunchError::system("cannot make the job's token", cause));
    }
    if stays_here(&job.master_addr) && job.masters.iter().all(|(host, _)| stays_here(host)) {
        return Ok(TokenSource::Inherited);
    }
    Err(LaunchError::Invalid {
        what: format!(
            "a job of {} nodes that meets at {} needs a token, which keeps strangers out",
            job.nnodes, job.master_addr
        ),
        remedy: format!(
            "make one with `(umask 077; openssl rand -hex 32 > FILE)`, copy FILE to every node, and start each \
             with --token-file FILE (or set {} or {})",
            env::TOKEN,
            env::TOKEN_FILE
        ),
    })
}

/// Returns true if only this machine can reach a host of that name.
fn stays_here(host: &str) -> bool {
    let mut addresses = (host, 0).to_socket_addrs().into_iter().flatten().peekable();
    addresses.peek().is_some() && addresses.all(|address| address.ip().to_canonical().is_loopback())
}

impl TokenSource {
    /// Returns the variable to set for the workers, and the one that they must not inherit.
    pub(crate) fn variables(&self) -> (Option<(String, OsString)>, Option<&'static str>) {
        match self {
            TokenSource::Inherited => (None, None),
            TokenSource::Generated(text) => (Some((env::TOKEN.into(), text.into())), Some(env::TOKEN_FILE)),
            TokenSource::File(path) => (Some((env::TOKEN_FILE.into(), path.into())), Some(env::TOKEN)),
        }
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenSource::Inherited => f.write_str("Inherited"),
            TokenSource::Generated(_) => f.write_str("Generated(…)"),
            TokenSource::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn several(host: &str) -> Job {
        Job { nnodes: 2, master_addr: host.into(), master_port: Some(1), ..Job::new(["true"], 1) }
    }

    #[test]
    fn one_node_gets_its_own_token() {
        let made = || match choose(&Job::new(["true"], 2), |_| false).unwrap() {
            TokenSource::Generated(text) => text,
            other => panic!("{other:?}"),
        };
        let (one, other) = (made(), made());
        assert!(one != other && one.len() >= 32);
        assert!(!format!("{:?}", TokenSource::Generated(one.clone())).contains(&one));
    }

    #[test]
    fn given_tokens_are_taken() {
        for name in [env::TOKEN, env::TOKEN_FILE] {
            for job in [Job::new(["true"], 2), several("192.0.2.1")] {
                assert!(matches!(choose(&job, |n| n == name).unwrap(), TokenSource::Inherited));
                let job = Job { env: vec![(name.into(), "x".into())], ..job };
                assert!(matches!(choose(&job, |_| false).unwrap(), TokenSource::Inherited));
            }
        }
    }

    #[test]
    fn several_nodes_need_one_unless_they_are_one_machine() {
        let error = choose(&several("192.0.2.1"), |_| false).unwrap_err().to_string();
        for word in ["192.0.2.1", "openssl", "--token-file", "KOLO_TOKEN"] {
            assert!(error.contains(word), "{error}");
        }
        assert!(choose(&several("no such host"), |_| false).is_err());
        let one_elsewhere = Job { masters: vec![("192.0.2.1".into(), 1)], ..several("127.0.0.1") };
        assert!(choose(&one_elsewhere, |_| false).is_err());
        for here in ["127.0.0.1", "localhost", "::1"] {
            assert!(matches!(choose(&several(here), |_| false).unwrap(), TokenSource::Inherited), "{here}");
        }
    }

    #[test]
    fn a_token_file_is_checked_before_anything_starts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let job = Job { token_file: Some(file.clone()), ..several("192.0.2.1") };
        let error = choose(&job, |_| false).unwrap_err().to_string();
        assert!(error.contains(file.to_str().unwrap()) && error.contains("--token-file"), "{error}");
        std::fs::write(&file, "too short").unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, private).unwrap();
        let error = choose(&job, |_| false).unwrap_err().to_string();
        assert!(error.contains("9 characters"), "{error}");
        std::fs::write(&file, "long enough for a token\n").unwrap();
        let token = choose(&job, |name| name == env::TOKEN).unwrap();
        let (set, unset) = token.variables();
        assert_eq!(set.unwrap(), (env::TOKEN_FILE.to_string(), file.into_os_string()));
        assert_eq!(unset, Some(env::TOKEN), "the flag wins over what is inherited");
    }
}
