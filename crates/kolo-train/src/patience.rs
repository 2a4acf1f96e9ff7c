//! Retries of failed writes at the end of a run: the user may free space on a full disk, or bring a folder
//! back.

use std::thread::sleep;
use std::time::{Duration, Instant};

use kolo_recipe::Error::NotTheWriter;

use crate::error::Error;

/// Time of the retries. The other ranks wait meanwhile, and take a rank for hung that is silent for 15 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(200);

/// Tries a write until it succeeds or `until` has passed, with one warning. A refused writer does not retry.
pub(crate) fn patiently<E: Into<Error>>(
    until: Instant,
    mut write: impl FnMut() -> Result<(), E>,
) -> Result<(), Error> {
    let mut has_told = false;
    loop {
        match write().map_err(E::into) {
            Err(error) if Instant::now() < until && !matches!(error, Error::Recipe(NotTheWriter(_))) => {
                if !std::mem::replace(&mut has_told, true) {
                    let seconds = until.saturating_duration_since(Instant::now()).as_secs_f64();
                    let words =
                        format_args!("{error}; the run is over, this is tried for {seconds:.0} s more");
                    kolo_ddp::checkpoint::tell(&words);
                }
                sleep(RETRY);
            }
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use kolo_recipe::Error::FolderGone;

    use super::*;

    #[test]
    fn what_can_be_written_later_is_and_what_may_not_be_is_not() {
        let later = || Instant::now() + Duration::from_secs(3600);
        let mut tries = 0;
        let mut third = || {
            tries += 1;
            if tries < 3 { Err(FolderGone { path: "run".into() }) } else { Ok(()) }
        };
        patiently(later(), &mut third).unwrap();
        let gone = patiently(Instant::now(), || Err(FolderGone { path: "run".into() }));
        assert!(tries == 3 && matches!(gone, Err(Error::Recipe(FolderGone { .. }))));
        let refusal =
            kolo_claim::Refusal { folder: "run".into(), kind: kolo_claim::RefusalKind::Fenced, by: None };
        let refused = patiently(later(), || Err(NotTheWriter(Box::new(refusal.clone()))));
        assert!(matches!(refused, Err(Error::Recipe(NotTheWriter(_)))));
    }
}
