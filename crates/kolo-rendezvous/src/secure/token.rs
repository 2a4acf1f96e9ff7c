//! The job's token: a secret that only its workers know.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};

use crate::env;
use crate::error::Error;

/// Minimum number of characters: shorter tokens are typing errors or can be guessed.
const SHORTEST: usize = 16;

/// Maximum number of bytes read from a token file, in case the path names a device or a data set by mistake.
const LONGEST_FILE: u64 = 4096;

/// The secret that admits a worker to its job.
///
/// It is stored as a hash, which is the key of the handshake, and is never printed. An attacker who records
/// a handshake can test guesses offline, so the text should be random ([`Token::generate`]).
#[derive(Clone)]
pub struct Token {
    key: [u8; 32],
}

impl Token {
    /// Creates a token from text, ignoring surrounding white space.
    ///
    /// # Errors
    ///
    /// [`Error::Token`]: the text is shorter than 16 characters.
    pub fn new(text: &str) -> Result<Token, Error> {
        Token::from_text(text).map_err(|problem| Error::Token { origin: "the token".into(), problem })
    }

    /// Reads the token in a file, ignoring surrounding white space. Refuses a file of this user that the
    /// group or others can read, as `ssh` does for keys.
    ///
    /// # Errors
    ///
    /// [`Error::Token`] names the file, which cannot be read, holds no token, or is not secret.
    pub fn from_file(path: &Path) -> Result<Token, Error> {
        let origin = format!("the token file {}", path.display());
        let named = |problem: String| Error::Token { origin, problem };
        read(path).and_then(|text| Token::from_text(&text)).map_err(named)
    }

    /// Reads `KOLO_TOKEN`, or the file that `KOLO_TOKEN_FILE` names; `None` if neither is set.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`] names the variable, and the file, that holds no valid token.
    pub fn from_env() -> Result<Option<Token>, Error> {
        Token::from_lookup(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    /// Works like [`Token::from_env`], with the non-empty variables that `lookup` finds.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`] names the variable, and the file, that holds no valid token.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<std::ffi::OsString>) -> Result<Option<Token>, Error> {
        match (lookup(env::TOKEN), lookup(env::TOKEN_FILE)) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(Error::environment(
                env::TOKEN,
                format!("and {} are both set; unset one of them", env::TOKEN_FILE),
            )),
            (Some(text), None) => {
                let named = |problem: String| Error::environment(env::TOKEN, problem);
                Token::from_text(&text.to_string_lossy()).map(Some).map_err(named)
            }
            (None, Some(path)) => {
                let path = PathBuf::from(path);
                let named = |problem: String| {
                    let problem = format!("names the file {}, which {problem}", path.display());
                    Error::environment(env::TOKEN_FILE, problem)
                };
                read(&path).and_then(|text| Token::from_text(&text)).map(Some).map_err(named)
            }
        }
    }

    /// Generates a new random token as text: 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: the operating system provides no random bytes.
    pub fn generate() -> Result<String, Error> {
        let mut bytes = [0; 32];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|cause| Error::system("the operating system gives no random bytes", cause))?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn from_text(text: &str) -> Result<Token, String> {
        let text = text.trim();
        let long = text.chars().count();
        if long < SHORTEST {
            return Err(format!(
                "has {long} characters; a token has at least {SHORTEST}, `openssl rand -hex 32` makes one"
            ));
        }
        let mut hash = digest::Context::new(&digest::SHA256);
        // The prefix makes the key differ from another program's key of the same text.
        hash.update(b"kolo job token\0");
        hash.update(text.as_bytes());
        let mut key = [0; 32];
        key.copy_from_slice(hash.finish().as_ref());
        Ok(Token { key })
    }

    pub(super) fn key(&self) -> &[u8; 32] {
        &self.key
    }
}

kolo_schedule::opaque_debug!(Token);

fn read(path: &Path) -> Result<String, String> {
    let cannot = |cause: std::io::Error| format!("cannot be read: {cause}");
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    check_mode(path, &file.metadata().map_err(cannot)?)?;
    file.take(LONGEST_FILE).read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

/// Refuses a file that other users can read. Files of other users, such as secrets that a cluster manager
/// mounts, and pipes pass: this user cannot change their mode.
fn check_mode(path: &Path, file: &std::fs::Metadata) -> Result<(), String> {
    let (mode, owner) = (file.mode() & 0o7777, file.uid());
    if !file.is_file() || owner != rustix::process::getuid().as_raw() || mode & 0o077 == 0 {
        return Ok(());
    }
    let path = path.display();
    Err(format!("can be read or changed by other users (its mode is {mode:04o}): run `chmod 600 {path}`"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const GOOD: &str = "0123456789abcdef";

    fn lookup(vars: &[(&str, &str)]) -> Result<Option<Token>, Error> {
        Token::from_lookup(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn surrounding_white_space_is_ignored() {
        let token = Token::new(GOOD).unwrap();
        assert_eq!(Token::new(&format!(" {GOOD}\n")).unwrap().key, token.key);
        assert_ne!(Token::new(&format!("{GOOD}0")).unwrap().key, token.key);
    }

    #[test]
    fn tokens_are_never_printed() {
        assert_eq!(format!("{:?}", Token::new(GOOD).unwrap()), "Token { .. }");
        let error = lookup(&[("KOLO_TOKEN", "hush")]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hush"));
    }

    #[test]
    fn errors_name_the_variable_and_the_file() {
        let folder = std::env::temp_dir().join(format!("kolo-token-{}", std::process::id()));
        std::fs::write(&folder, "short\n").unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o600)).unwrap();
        let file = folder.to_str().unwrap();
        for (vars, parts) in [
            (&[("KOLO_TOKEN", "short")][..], &["KOLO_TOKEN", "5 characters", "16"][..]),
            (&[("KOLO_TOKEN_FILE", file)], &["KOLO_TOKEN_FILE", file, "5 characters"]),
            (&[("KOLO_TOKEN_FILE", "/no/such/file")], &["KOLO_TOKEN_FILE", "/no/such/file", "read"]),
            (&[("KOLO_TOKEN_FILE", file), ("KOLO_TOKEN", GOOD)], &["KOLO_TOKEN_FILE", "both"]),
        ] {
            let error = lookup(vars).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        std::fs::remove_file(&folder).unwrap();
        assert!(lookup(&[]).unwrap().is_none());
        assert!(lookup(&[("KOLO_TOKEN", GOOD)]).unwrap().is_some());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let file = std::env::temp_dir().join(format!("kolo-token-mode-{}", std::process::id()));
        std::fs::write(&file, GOOD).unwrap();
        let with_mode = |mode| {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            Token::from_file(&file)
        };
        for mode in [0o644, 0o640, 0o604, 0o620, 0o777] {
            let error = with_mode(mode).unwrap_err().to_string();
            let remedy = format!("run `chmod 600 {}`", file.display());
            assert!(error.contains(&remedy) && error.contains(&format!("{mode:04o}")), "{error}");
        }
        for mode in [0o600, 0o400, 0o700] {
            with_mode(mode).unwrap();
        }
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn generated_tokens_differ_and_are_long_enough() {
        let (one, other) = (Token::generate().unwrap(), Token::generate().unwrap());
        assert!(one != other && one.len() == 64);
        Token::new(&one).unwrap();
    }
}
