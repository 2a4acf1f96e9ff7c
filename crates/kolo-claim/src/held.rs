//! A claim that this process holds: checked before each write, renewed meanwhile, given back at the end.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::claim::Claim;
use crate::error::{Error, RefusalKind};
use crate::files::ClaimFiles;

/// The right to write a folder, until a later claim. A thread renews it; dropping it gives the folder back.
#[derive(Debug)]
pub struct Held {
    files: ClaimFiles,
    claim: Claim,
    gives_back: bool,
    /// Sender that ends the thread when it is dropped, and the thread.
    renewing: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Held {
    /// Holds a claim that has just been created.
    /// If the system refuses a thread, the claim is ended.
    pub(crate) fn new(files: ClaimFiles, claim: Claim, beat: Duration) -> Result<Held, Error> {
        let (end, ended) = channel();
        let (own_files, own_claim) = (files.clone(), claim.clone());
        let mut held = Held { files, claim, gives_back: true, renewing: None };
        let renew = move || {
            while ended.recv_timeout(beat) == Err(RecvTimeoutError::Timeout) {
                own_files.renew(&own_claim);
            }
        };
        let thread = std::thread::Builder::new().name("kolo-claim".into()).spawn(renew);
        held.renewing = Some((end, thread.map_err(|e| Error::file(held.files.folder(), e))?));
        Ok(held)
    }

    /// The claim.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Checks that this process may write. Call it before each write. Costs the reading of a small file.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`]: another process has claimed the folder. [`Error::Gone`]: it is gone, but may
    /// return.
    pub fn check(&self) -> Result<(), Error> {
        if self.files.stands(&self.claim)? {
            return Ok(());
        }
        // The folder may disappear and return between two checks.
        let newest = self.files.newest()?;
        if newest.is_none() || self.files.stands(&self.claim)? {
            return Err(self.files.gone());
        }
        let by = newest.and_then(|standing| standing.claim);
        Err(Error::refused(RefusalKind::Fenced, self.files.folder(), by))
    }

    /// Ends without giving the folder back: the next generation of the job is about to claim it.
    pub fn hand_on(mut self) {
        self.gives_back = false;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.renewing.take() {
            drop(end);
            // The thread cannot panic.
            let _ = thread.join();
        }
        if self.gives_back {
            self.files.end(&self.claim);
        }
    }
}
