//! The program that workers run, held open from the start of the job. A replacement worker runs the same
//! program, even if its file has been replaced (as compilers and package managers do) or removed since. A
//! file that is written anew in place is the new program under both names; Linux refuses that while a worker
//! runs it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::LaunchError;
use crate::job::Job;

#[derive(Debug)]
pub(crate) struct Program {
    /// Name in the job's description.
    name: OsString,
    /// The file under that name, open. `None` if it is missing or unreadable, and for scripts, which their
    /// interpreter opens by name.
    held: Option<(PathBuf, File)>,
}

impl Program {
    /// Finds the job's program. The start of a worker reports a missing one.
    pub fn find(job: &Job) -> Program {
        let name = job.command[0].clone();
        let held = path_of(&name, job).and_then(|path| {
            let mut file = File::open(&path).ok()?;
            let mut begin = [0; 2];
            file.read_exact(&mut begin).ok()?;
            (begin != *b"#!").then_some((path, file))
        });
        Program { name, held }
    }

    /// Returns the path to execute: the name while it leads to the file found at the start, else that file.
    pub fn to_execute(&self) -> OsString {
        match &self.held {
            Some((path, file)) if !is_same(file.metadata().ok(), path.metadata().ok()) => {
                // The child has the same descriptor, which closes when the program is executed.
                format!("/proc/self/fd/{}", file.as_raw_fd()).into()
            }
            _ => self.name.clone(),
        }
    }

    /// Returns the name under which the program is called, whichever file is executed.
    pub fn name(&self) -> &OsStr {
        &self.name
    }
}

fn is_same(one: Option<Metadata>, other: Option<Metadata>) -> bool {
    let of = |file: Metadata| (file.dev(), file.ino());
    one.is_some() && one.map(of) == other.map(of)
}

/// Returns the path of a program: its own, or the one found in its workers' `PATH`.
fn path_of(name: &OsStr, job: &Job) -> Option<PathBuf> {
    let path = PathBuf::from(name);
    if name.to_string_lossy().contains('/') {
        return Some(path);
    }
    let given = job.env.iter().rev().find(|(variable, _)| variable == "PATH").map(|(_, value)| value.clone());
    let folders = given.or_else(|| std::env::var_os("PATH"))?;
    let is_program =
        |file: &PathBuf| file.metadata().is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0);
    std::env::split_paths(&folders).map(|folder| folder.join(&path)).find(is_program)
}

/// Checks that a command's program is an executable file, for a command that starts several jobs of it.
///
/// # Errors
///
/// There is no such program, or it is not executable: the error with which a worker's start would fail.
pub fn check_program(command: &[OsString]) -> Result<(), LaunchError> {
    let Some(name) = command.first() else { return Ok(()) };
    let found = path_of(name, &Job::new([name], 1)).map(fs::metadata);
    let problem = match found.unwrap_or_else(|| Err(ErrorKind::NotFound.into())) {
        Ok(file) if file.is_file() && file.mode() & 0o111 != 0 => return Ok(()),
        Ok(_) => ErrorKind::PermissionDenied.into(),
        Err(problem) => problem,
    };
    Err(cannot_start(name, problem))
}

/// Explains why a program cannot be started, with the remedy.
pub(crate) fn cannot_start(program: &OsStr, cause: io::Error) -> LaunchError {
    let path = Path::new(program);
    let has_folder = path.components().count() > 1;
    let hint = match cause.kind() {
        ErrorKind::NotFound if path.is_file() && !has_folder => {
            format!("it is not in PATH; for the file in this folder write ./{}", path.display())
        }
        ErrorKind::NotFound if path.is_file() => {
            "the interpreter or loader that the file asks for does not exist (see its first line)".into()
        }
        ErrorKind::NotFound if has_folder => "there is no such file".into(),
        ErrorKind::NotFound => {
            "there is no such program in PATH; for a file write its path, as in ./name".into()
        }
        ErrorKind::PermissionDenied if path.is_dir() => "it is a folder".into(),
        ErrorKind::PermissionDenied => "it is not executable; `chmod +x` makes it so".into(),
        _ => cause.to_string(),
    };
    LaunchError::Program { program: program.into(), hint, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_be_started_is_known_before() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        fs::write(&text, "words").unwrap();
        let check = |name: &OsStr| check_program(&[name.into()]);
        check(OsStr::new("/bin/true")).unwrap();
        check(OsStr::new("true")).unwrap();
        let refused = |name: &OsStr| check(name).unwrap_err().to_string();
        assert!(refused(text.as_os_str()).contains("it is not executable"), "{}", refused(text.as_os_str()));
        assert!(refused(folder.path().as_os_str()).contains("it is a folder"));
        assert!(refused(folder.path().join("none").as_os_str()).contains("there is no such file"));
        assert!(refused(OsStr::new("no-such-program")).contains("no such program in PATH"));
    }

    #[test]
    fn a_program_is_started_by_its_name_until_another_one_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("program"), folder.path().join("other"));
        fs::copy("/bin/true", &path).unwrap();
        let program = Program::find(&Job::new([&path], 1));
        assert_eq!(program.to_execute(), path.as_os_str());
        fs::copy("/bin/false", &other).unwrap();
        fs::rename(&other, &path).unwrap();
        let held = program.to_execute();
        assert!(held.to_string_lossy().starts_with("/proc/self/fd/"), "{held:?}");
        assert!(std::process::Command::new(&held).status().unwrap().success(), "it runs the first one");
        fs::remove_file(&path).unwrap();
        assert_eq!(program.to_execute(), held);
    }

    #[test]
    fn programs_are_found_in_path_and_scripts_go_by_their_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::copy("/bin/true", folder.path().join("program")).unwrap();
        let path = vec![("PATH".into(), folder.path().as_os_str().to_owned())];
        let program = Program::find(&Job { env: path, ..Job::new(["program"], 1) });
        assert_eq!(program.held.as_ref().unwrap().0, folder.path().join("program"));
        let script = folder.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let program = Program::find(&Job::new([&script], 1));
        fs::remove_file(&script).unwrap();
        assert_eq!(program.to_execute(), script.as_os_str());
        assert!(Program::find(&Job::new(["no-such-program"], 1)).held.is_none());
    }
}
