//! Rank 0's right to write the run folder, checked before each write.

use std::path::{Path, PathBuf};

use kolo_claim::{Candidate, Error as ClaimError, Held, Standing};
use parking_lot::Mutex;

use crate::error::Error;

/// A claim to a run folder, or a pending one if the folder was away.
#[derive(Debug)]
pub struct RunClaim {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    candidate: Candidate,
    held: Option<Held>,
}

impl RunClaim {
    /// Makes a pending claim; [`RunClaim::check`] takes the folder.
    pub(crate) fn new(folder: &Path, candidate: Candidate) -> Self {
        RunClaim { folder: folder.to_owned(), state: Mutex::new(State { candidate, held: None }) }
    }

    /// Claims the folder again for another generation. Fails as [`RunClaim::check`] does.
    pub fn renew(&self, candidate: Candidate) -> Result<(), Error> {
        {
            let mut state = self.state.lock();
            state.candidate = candidate;
            if let Some(held) = state.held.take() {
                held.hand_on();
            }
        }
        self.check()
    }

    /// Checks that this process may write. Takes the folder if that was not possible before.
    ///
    /// # Errors
    ///
    /// Another process writes the folder ([`Error::NotTheWriter`]), or the folder is gone and may come back.
    pub fn check(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        match &state.held {
            Some(held) => held.check().map_err(from_claim),
            None => {
                let held = kolo_claim::take(&self.folder, &state.candidate, tell_waiting);
                state.held = Some(held.map_err(from_claim)?);
                Ok(())
            }
        }
    }

    /// Releases the folder to the job's next generation, which has another writer.
    pub fn hand_on(&self) {
        if let Some(held) = self.state.lock().held.take() {
            held.hand_on();
        }
    }

    /// Returns the unique id of this claim.
    pub fn id(&self) -> String {
        self.state.lock().candidate.id.clone()
    }
}

/// Warns the user about the wait for another writer.
pub(crate) fn tell_waiting(standing: &Standing) {
    let by =
        standing.claim.as_ref().map_or("a process whose claim cannot be read".into(), |by| by.to_string());
    let seconds = kolo_claim::Timing::default().lease.as_secs();
    kolo_ddp::checkpoint::tell(&format_args!(
        "{by} wrote the run folder, and this host cannot ask it; waiting up to {seconds} s to see \
         whether it still writes"
    ));
}

pub(crate) fn from_claim(error: ClaimError) -> Error {
    match error {
        ClaimError::Refused(refusal) => Error::NotTheWriter(refusal),
        ClaimError::Gone { folder } => Error::FolderGone { path: folder },
        ClaimError::File { path, source } => Error::File { path, source },
        other => Error::Claim(other),
    }
}
