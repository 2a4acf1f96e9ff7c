//! The address of rank 0's store from the command line: `--master HOST:PORT`, or torchrun's `--master-addr`
//! and `--master-port`. Launchers of several nodes also meet there, and at further addresses of `--master`.

use std::net::Ipv6Addr;

use crate::error::LaunchError;
use crate::job::Job;

impl Job {
    /// Sets the store's address from `--master`, `--master-addr` and `--master-port`. Without any of them it
    /// is a free port of this machine. The number of nodes must have been set before.
    ///
    /// # Errors
    ///
    /// The options are contradictory or invalid, or a job of several nodes has none of them.
    pub fn set_master(
        &mut self,
        master: Option<&str>,
        addr: Option<&str>,
        port: Option<u16>,
    ) -> Result<(), LaunchError> {
        let all = master.map_or(Ok(Vec::new()), |text| text.split(',').map(|one| parse(one, text)).collect());
        let mut all: Vec<(String, u16)> = all?;
        let others = if all.is_empty() { Vec::new() } else { all.split_off(1) };
        let both = all.pop();
        let host = both.as_ref().map(|(host, _)| host.as_str());
        let addr = addr.map(without_brackets);
        if let (Some(master), Some((of_master, at)), conflict) = (master, &both, (addr, port)) {
            let other = match conflict {
                (Some(addr), _) if addr != of_master => format!("--master-addr {addr}"),
                (_, Some(port)) if port != *at => format!("--master-port {port}"),
                _ => String::new(),
            };
            if !other.is_empty() {
                let what = format!("--master {master} and {other} contradict each other");
                return Err(invalid(what, "give --master alone"));
            }
        }
        match host.or(addr) {
            Some(host) => self.master_addr = host.into(),
            None if self.nnodes > 1 => {
                let what = format!("{} nodes need one place that all of them know", self.nnodes);
                return Err(invalid(
                    what,
                    "give every node the same --master HOST:PORT, where HOST is node 0",
                ));
            }
            None => {}
        }
        self.master_port = both.map(|(_, port)| port).or(port);
        self.masters = others;
        Ok(())
    }
}

/// Parses `HOST:PORT`. An IPv6 address needs brackets, because its end would look like a port. `whole` is
/// the option's text.
fn parse(text: &str, whole: &str) -> Result<(String, u16), LaunchError> {
    let wrong = |remedy: &str| invalid(format!("--master is `{whole}`"), remedy);
    let form = "write HOST:PORT, as in head:29500 or [::1]:29500";
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(wrong("put an IPv6 address in brackets and a port behind it, as in [::1]:29500"));
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong(form))?;
    let port = port.parse().ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| wrong("the port must be a number from 1 to 65535, as in head:29500"))?;
    let bare = without_brackets(host);
    if bare.is_empty() || (bare.contains(':') && bare.len() == host.len()) {
        return Err(wrong(form));
    }
    Ok((bare.into(), port))
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn invalid(what: String, remedy: &str) -> LaunchError {
    LaunchError::Invalid { what, remedy: remedy.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Options<'a> = (Option<&'a str>, Option<&'a str>, Option<u16>);

    fn meet(nnodes: usize, (master, addr, port): Options) -> Result<(String, Option<u16>), String> {
        let mut job = Job { nnodes, ..Job::new(["true"], 2) };
        job.set_master(master, addr, port).map_err(|error| error.to_string())?;
        Ok((job.master_addr, job.master_port))
    }

    #[test]
    fn all_spellings_of_a_place() {
        for (options, host, port) in [
            ((None, None, None), "127.0.0.1", None),
            ((None, None, Some(1)), "127.0.0.1", Some(1)),
            ((None, Some("head"), None), "head", None),
            ((None, Some("[::1]"), Some(2)), "::1", Some(2)),
            ((Some("head:29500"), None, None), "head", Some(29500)),
            ((Some("[::1]:29500"), None, None), "::1", Some(29500)),
            ((Some("192.0.2.1:1"), Some("192.0.2.1"), Some(1)), "192.0.2.1", Some(1)),
            ((Some("[::1]:7"), Some("::1"), Some(7)), "::1", Some(7)),
        ] {
            assert_eq!(meet(1, options), Ok((host.to_string(), port)), "{options:?}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (master, hint) in [
            ("head", "HOST:PORT"),
            ("", "HOST:PORT"),
            (":29500", "HOST:PORT"),
            ("[]:29500", "HOST:PORT"),
            ("::1", "brackets"),
            ("fe80::1:2950", "brackets"),
            ("fe80::1:29500", "HOST:PORT"),
            ("head:", "65535"),
            ("head:0", "65535"),
            ("head:99999", "65535"),
            ("[::1]", "65535"),
            ("head:1,", "HOST:PORT"),
            ("head:1,tail", "HOST:PORT"),
        ] {
            let error = meet(1, (Some(master), None, None)).unwrap_err();
            assert!(error.contains(&format!("`{master}`")) && error.contains(hint), "{error}");
        }
    }

    #[test]
    fn several_places_are_one_of_rank_0_and_others() {
        let mut job = Job { nnodes: 2, ..Job::new(["true"], 2) };
        job.set_master(Some("head:1,[::1]:2,tail:3"), None, None).unwrap();
        assert_eq!((job.master_addr.as_str(), job.master_port), ("head", Some(1)));
        assert_eq!(job.masters, [("::1".into(), 2), ("tail".into(), 3)]);
    }

    #[test]
    fn contradictions_are_refused() {
        for (addr, port, named) in
            [(Some("tail"), None, "--master-addr tail"), (Some("head"), Some(2), "--master-port 2")]
        {
            let error = meet(2, (Some("head:1"), addr, port)).unwrap_err();
            assert!(error.contains("--master head:1") && error.contains(named), "{error}");
        }
    }

    #[test]
    fn several_nodes_need_a_place() {
        let error = meet(2, (None, None, Some(29500))).unwrap_err();
        assert!(error.contains("--master HOST:PORT"), "{error}");
        assert_eq!(meet(2, (Some("head:1"), None, None)), Ok(("head".into(), Some(1))));
    }
}
