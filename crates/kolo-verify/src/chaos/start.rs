//! The processes of a run: the launchers of its nodes, and the etcd between them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kolo_ddp::verify::{aim, trace};
use kolo_elastic::Needs;
use kolo_launch::die_with_parent;
use kolo_program::Failure;
use kolo_train::RUN_FOLDER;

use super::etcd::Etcd;
use super::hosts::Hosts;
use super::job::{ChaosJob, Program};
use super::launchers::Launchers;
use super::log_pipe::LogPipe;
use super::place::Place;
use super::plan::MOST;
use super::port::free_port;
use crate::running::Running;

impl ChaosJob {
    /// Starts the launchers of a run.
    pub(super) fn start(&self, place: &Place, tuned: bool) -> Result<Launchers, Failure> {
        if self.nodes == 1 {
            let node = self.start_node(place, 0, &[], tuned)?;
            return Ok(Launchers::new(vec![node], None, self.interrupted.clone()));
        }
        let hub = place.hosts.as_ref().map(Hosts::hub);
        let etcd = self.asks_etcd().then(|| Etcd::start(&place.path().join("etcd"), hub)).transpose()?;
        let arbiter = self.arbiter.with(&match &etcd {
            Some(etcd) => etcd.member(),
            None if self.arbiter.needs == Needs::Nothing => String::new(),
            None => place.path().join("arbiter").display().to_string(),
        });
        let address = place.hosts.as_ref().map_or(Ipv4Addr::LOCALHOST, |hosts| hosts.host(0).address);
        let (count, master) = (self.nodes.to_string(), format!("{address}:{}", free_port()?));
        // Communication beyond loopback needs a token.
        let token = place.path().join("token").display().to_string();
        write_token(Path::new(&token))?;
        let several =
            ["--nnodes", &count, "--master", &master, "--arbiter", &arbiter, "--token-file", &token];
        let nodes = (0..self.nodes).map(|node| self.start_node(place, node, &several, tuned));
        Ok(Launchers::new(nodes.collect::<Result<_, _>>()?, etcd, self.interrupted.clone()))
    }

    /// Starts the launcher of a node; `several` has further options for jobs of several nodes.
    fn start_node(
        &self,
        place: &Place,
        node: usize,
        several: &[&str],
        tuned: bool,
    ) -> Result<(Running, LogPipe), Failure> {
        let log = place.log(node);
        let output = File::create(&log).and_then(LogPipe::start);
        let (output, out) = output.map_err(|e| Failure::work(format!("{}: {e}", log.display())))?;
        let err = out.try_clone().map_err(|e| Failure::work(format!("a pipe: {e}")))?;
        let own = std::env::current_exe();
        let own = own.map_err(|e| Failure::work(format!("cannot find this program: {e}")))?;
        let program = if self.can_be_resumed() { copied(&own, place.program())? } else { own };
        let mut command = Command::new(&program);
        let train = |options: &[OsString]| {
            let out = ["--out".into(), place.run().into_os_string()];
            // The same command resumes the run after it was ended.
            let resume: &[OsString] = if self.can_be_resumed() { &["--resume-or-start".into()] } else { &[] };
            [&["train".into()], options, &out, resume].concat()
        };
        // Program and arguments for `kolo launch`; `kolo train` on one node is its own launcher.
        let launched = match &self.program {
            Program::Train(options) if several.is_empty() => {
                command.args(train(options));
                None
            }
            Program::Train(options) => Some([vec![program.into_os_string()], train(options)].concat()),
            Program::Own(words) => {
                command.env(trace::FILE, place.trace()).env(RUN_FOLDER, place.run());
                Some(words.clone())
            }
        };
        if launched.is_some() {
            command.arg("launch");
        }
        if !several.is_empty() {
            command.args(several).args(["--node-rank", &node.to_string()]);
        }
        command.args(["--nproc", &self.nproc.to_string(), "--max-restarts", &(2 * MOST).to_string()]);
        if self.servers > 0 {
            command.args(["--servers", &self.servers.to_string()]);
        }
        if let Some(words) = launched {
            command.arg("--").args(words);
        }
        if tuned {
            command.env(trace::TUNE, "1");
        }
        if self.shared {
            command.env(aim::FOLDER, place.aims());
        }
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        die_with_parent(&mut command);
        let host = place.hosts.as_ref().map(|hosts| hosts.host(node));
        let child = match host {
            Some(host) => host.spawn(&mut command),
            None => command.spawn(),
        };
        let child = child.map_err(|e| Failure::work(format!("cannot start a run: {e}")))?;
        Ok((Running(child), output))
    }
}

/// Gives this program a file of its own: a hard link if possible, else a copy.
fn copied(own: &Path, path: PathBuf) -> Result<PathBuf, Failure> {
    let _ = fs::remove_file(&path);
    let made = fs::hard_link(own, &path).or_else(|_| fs::copy(own, &path).map(drop));
    made.map_err(|e| Failure::work(format!("{}: {e}", path.display())))?;
    Ok(path)
}

/// Writes the token file with which the launchers of a job authenticate each other.
fn write_token(path: &Path) -> Result<(), Failure> {
    let fail = |cause: std::io::Error| Failure::work(format!("{}: {cause}", path.display()));
    let mut file = File::create(path).map_err(fail)?;
    file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(fail)?;
    let token: [u64; 4] = std::array::from_fn(|_| RandomState::new().hash_one(0));
    write!(file, "{token:016x?}").map_err(fail)
}
