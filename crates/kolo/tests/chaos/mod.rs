//! `kolo chaos` on the command line.

use std::process::{Command, Stdio};

/// Runs two seeds of `kolo chaos` in a folder of their own. The runs lose nothing and leave nothing, and the
/// output contains `sign`, which shows that the fault was injected.
///
/// # Panics
///
/// One of these does not hold.
pub fn injected(seeds: &[&str], sign: &str) {
    let place = tempfile::tempdir().unwrap();
    let mut told = String::new();
    // A run may end before its faults if the machine was much busier during the undisturbed one.
    for _ in 0..3 {
        let mut kolo = Command::new(env!("CARGO_BIN_EXE_kolo"));
        kolo.arg("chaos").args(seeds).current_dir(place.path()).env("TMPDIR", place.path());
        let output = kolo.stdin(Stdio::null()).output().unwrap();
        told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
        assert!(told.contains("2 runs: 0 lost something, 0 failed, 0 hung"), "{told}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "nothing is left");
        if told.contains(sign) {
            return;
        }
    }
    panic!("no fault was injected that says \"{sign}\": {told}")
}
