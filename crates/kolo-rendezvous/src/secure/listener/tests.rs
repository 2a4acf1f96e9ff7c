use super::*;

#[test]
fn the_oldest_of_too_many_handshakes_learns_why_it_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let access = Access::default();
    let _listener = SecureListener::start(listener, &access, Protocol::Store, 0, |_| {}).unwrap();
    let mut silent: Vec<TcpStream> = (0..=HANDSHAKES).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut answer = Vec::new();
    silent[0].read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [0, 0, RejectReason::Crowded as u8]);
    silent[1].set_nonblocking(true).unwrap();
    assert_eq!(silent[1].read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

const ALONE: &str = "secure::listener::tests::in_a_process_of_its_own";

#[test]
fn a_listener_without_threads_says_so_until_it_has_some() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", "--ignored", ALONE]).output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
}

#[test]
#[ignore = "a_listener_without_threads_says_so_until_it_has_some starts it: it limits its process"]
fn in_a_process_of_its_own() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let access = Access::default();
    let listener = SecureListener::start(listener, &access, Protocol::Store, 0, |_| {}).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kilobytes: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    let before = getrlimit(Resource::As);
    // No room for a stack of 2 MiB, and some for what the others allocate.
    let limit = Rlimit { current: Some((kilobytes + 1536) * 1024), ..before };
    setrlimit(Resource::As, limit).unwrap();
    let wait_until = |is: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !is() && Instant::now() < until {
            drop(TcpStream::connect(address));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(is());
    };
    assert_eq!(listener.without_threads(), None);
    wait_until(&|| listener.without_threads().is_some_and(|(since, _)| !since.is_zero()));
    setrlimit(Resource::As, before).unwrap();
    wait_until(&|| listener.without_threads().is_none());
}
