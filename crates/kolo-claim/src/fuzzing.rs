//! Decoder of this crate for bytes from outside, for `fuzz/`. Not part of the public interface.

use std::time::SystemTime;

use crate::claim::{Candidate, Claim};
use crate::decide::decide;
use crate::files::Standing;
use crate::owner::Liveness;

/// A decoder, which must take any bytes without a panic.
pub type Decoder = fn(&[u8]);

/// Names of the fuzzing targets, and their decoders.
pub const TARGETS: &[(&str, Decoder)] = &[("claim", claim)];

/// Decodes a claim, and decides about it.
pub fn claim(bytes: &[u8]) {
    let claim: Option<Claim> = serde_json::from_slice(bytes).ok();
    let _ = claim.as_ref().map(Claim::to_string);
    let candidate = Candidate::alone();
    for has_ended in [false, true] {
        let standing = Standing { term: 1, claim: claim.clone(), has_ended, renewed: SystemTime::UNIX_EPOCH };
        for liveness in [Liveness::Alive, Liveness::Dead, Liveness::Unknown] {
            decide(Some(&standing), &candidate, liveness);
        }
    }
}

/// Valid bytes for every target: the target's name, the seed's name, and the bytes.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let text = r#"{"term":2,"id":"a-7-0-0","job":"a","generation":3,"owner":{"host":"a","pid":7,"started":1,
        "place":["boot","pid:[1]"]},"since_unix":1700000000}"#;
    vec![("claim", "one", text.into())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds_and_takes_them() {
        let seeds = seeds();
        kolo_testing::assert_seeds_are_taken(TARGETS, &seeds);
        assert!(serde_json::from_slice::<Claim>(&seeds[0].2).is_ok());
    }
}
