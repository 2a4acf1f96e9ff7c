//! A small HTTP server for one page, `/metrics`, in Prometheus' text format.
//!
//! A thread answers one client after the other and then hangs up. A client that is slow or sends garbage
//! costs the others a second, and the training nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use prometheus::{Registry, TEXT_FORMAT, TextEncoder};

/// Time between two looks for a client.
const LOOK: Duration = Duration::from_millis(50);
/// Longest time for a client's request, and for its reading of the answer.
const LIMIT: Duration = Duration::from_secs(1);
const LARGEST_REQUEST: usize = 8 << 10;

/// A server that stops on drop.
pub(super) struct Server {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves the metrics of `registry` to the clients of `listener`.
    pub(super) fn start(listener: TcpListener, registry: Registry) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        let thread = thread::Builder::new().name("kolo-metrics".into());
        let thread = thread.spawn(move || serve(&listener, &registry, &until))?;
        Ok(Server { ends, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread does not panic; if it did, the training would not suffer.
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, registry: &Registry, ends: &AtomicBool) {
    while !ends.load(Ordering::Acquire) {
        match listener.accept() {
            // A client that does not take its answer comes again.
            Ok((client, _)) => drop(answer(client, registry)),
            // No client is there, or no descriptor is left for now.
            Err(_) => thread::park_timeout(LOOK),
        }
    }
}

fn answer(mut client: TcpStream, registry: &Registry) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_write_timeout(Some(LIMIT))?;
    let request = request(&mut client)?;
    let (status, body) = match path(&request) {
        None => ("400 Bad Request", "this is no request of HTTP\n".into()),
        Some("/metrics") => {
            ("200 OK", TextEncoder::new().encode_to_string(&registry.gather()).map_err(io::Error::other)?)
        }
        Some(_) => ("404 Not Found", "the metrics are at /metrics\n".into()),
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {TEXT_FORMAT}\r\nContent-Length: {length}");
    client.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes())
}

/// Reads the client's request up to an empty line.
fn request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + LIMIT;
    let (mut request, mut piece) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < LARGEST_REQUEST {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut piece)? {
            0 => break,
            read => request.extend_from_slice(&piece[..read]),
        }
    }
    Ok(request)
}

fn path(request: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(request.split(|byte| *byte == b'\r').next()?).ok()?;
    let (target, version) = line.strip_prefix("GET ")?.split_once(' ')?;
    version.starts_with("HTTP/1.").then(|| target.split('?').next().unwrap_or(target))
}

#[cfg(test)]
mod tests {
    use prometheus::Gauge;

    use super::*;

    fn started() -> (Server, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, registry) = (listener.local_addr().unwrap(), Registry::new());
        let gauge = Gauge::new("loss", "Mean loss.").unwrap();
        gauge.set(0.25);
        registry.register(Box::new(gauge)).unwrap();
        (Server::start(listener, registry).unwrap(), address)
    }

    fn ask(address: std::net::SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request).unwrap();
        let mut answer = Vec::new();
        // A client that sends too much may be cut off.
        let _ = client.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn clients_get_the_metrics_one_after_the_other() {
        let (server, address) = started();
        // Other clients hold connections and send nothing, or half a request.
        let idle = TcpStream::connect(address).unwrap();
        let mut half = TcpStream::connect(address).unwrap();
        half.write_all(b"GET /met").unwrap();
        let began = Instant::now();
        let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(began.elapsed() < 4 * LIMIT);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{answer}");
        assert!(
            answer.ends_with("\r\n\r\n# HELP loss Mean loss.\n# TYPE loss gauge\nloss 0.25\n"),
            "{answer}"
        );
        assert!(ask(address, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n").contains("loss 0.25"));
        drop((idle, half, server));
        TcpStream::connect(address).unwrap_err();
    }

    #[test]
    fn what_is_no_request_for_metrics_is_refused() {
        let (_server, address) = started();
        assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        for garbage in [
            &b"\r\n\r\n"[..],
            b"POST /metrics HTTP/1.1\r\n\r\n",
            b"GET /metrics\r\n\r\n",
            b"\xff\xfe\r\n\r\n",
        ] {
            assert!(ask(address, garbage).starts_with("HTTP/1.1 400"), "{garbage:?}");
        }
        ask(address, &[b'x'; 4 * LARGEST_REQUEST]);
        assert!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").contains("loss 0.25"));
    }
}
