//! A job's requirements for connections, and the addresses at which it may listen.

use std::net::IpAddr;

use super::token::Token;
use crate::env;
use crate::error::Error;

/// A job's requirements for connections.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Token of the job; without one, the job stays on loopback.
    pub token: Option<Token>,
    /// True if data connections stay encrypted after the handshake, which needs a token.
    pub encrypt: bool,
}

impl Access {
    /// Creates the requirements of a job with an optional token and optional encryption of data connections.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`]: encryption needs a token to make keys from.
    pub fn new(token: Option<Token>, encrypt: bool) -> Result<Access, Error> {
        if encrypt && token.is_none() {
            let problem = format!(
                "asks for encryption, but the job has no token to make keys from; set {} or {}, the same for all \
                 workers",
                env::TOKEN,
                env::TOKEN_FILE
            );
            return Err(Error::environment(env::ENCRYPT, problem));
        }
        Ok(Access { token, encrypt })
    }

    /// Checks that a process of this job may listen at an address.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`]: other machines can reach the address, and no token keeps strangers out.
    pub fn may_listen(&self, ip: IpAddr) -> Result<(), Error> {
        if self.token.is_some() || ip.to_canonical().is_loopback() {
            return Ok(());
        }
        let problem = format!(
            "leads to {ip}, which other machines can reach, but the job has no token to keep strangers out; write \
             one to a file (`openssl rand -hex 32 > FILE`) and give it to all workers by `kolo launch --token-file \
             FILE`, {} or {}",
            env::TOKEN,
            env::TOKEN_FILE
        );
        Err(Error::environment(env::MASTER_ADDR, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_token_only_loopback() {
        let open = Access::default();
        for (ip, fine) in [
            ("127.0.0.1", true),
            ("127.0.1.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(open.may_listen(ip.parse().unwrap()).is_ok(), fine, "{ip}");
        }
        let token = Some(Token::new("0123456789abcdef").unwrap());
        assert!(Access { token, encrypt: false }.may_listen("0.0.0.0".parse().unwrap()).is_ok());
    }

    #[test]
    fn encryption_needs_a_token() {
        let error = Access::new(None, true).unwrap_err().to_string();
        assert!(error.contains("KOLO_ENCRYPT") && error.contains("KOLO_TOKEN"), "{error}");
    }
}
