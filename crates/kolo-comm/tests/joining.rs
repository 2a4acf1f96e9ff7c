//! Admission to a job: only workers with its token may join. Refused callers do not disturb the job.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use kolo_comm::env::WorkerEnv;
use kolo_comm::{Error, Group, Op, Options, Rank, TCP, Token};
use kolo_testing::{ALL, Over, free_port, spawn};

const TEXT: &str = "what all workers of the tests know";

fn options(token: Option<&str>, encrypt: bool) -> Options {
    let token = token.map(|text| Token::new(text).unwrap());
    Options { timeout: Some(Duration::from_secs(30)), token, encrypt, ..Options::default() }
}

fn over_tcp(options: Options) -> Options {
    Options { transport: Some(&TCP), ..options }
}

fn join(rank: usize, world: usize, master: SocketAddr, options: &Options) -> Result<Group, Error> {
    Group::join(&WorkerEnv { rank: Rank(rank), world_size: world, endpoint: master.into() }, options)
}

/// Sums over the group until `stop` is set; returns how often. All ranks stop after the same sum.
fn work(group: &Group, stop: &AtomicBool) -> usize {
    for count in 1.. {
        let mut data = vec![1f32; 3000];
        data[0] = if stop.load(Ordering::SeqCst) { 1.0 } else { 0.0 };
        group.all_reduce(&mut data, Op::Sum).unwrap();
        assert!(data[1..].iter().all(|sum| *sum == group.world_size() as f32));
        if data[0] > 0.0 {
            return count;
        }
    }
    unreachable!("an endless range")
}

/// Forms a group of three, which works while `strangers` attacks its store.
fn undisturbed(options: &Options, strangers: impl FnOnce(SocketAddr)) {
    let (master, stop) = (free_port(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let start = |rank| {
            let stop = &stop;
            scope.spawn(move || work(&join(rank, 3, master, options).unwrap(), stop))
        };
        let mut ranks = vec![start(0), start(1)];
        strangers(master);
        // The last rank has to get through as well.
        ranks.push(start(2));
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::SeqCst);
        let counts: Vec<usize> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        assert!(counts.iter().all(|count| *count == counts[0] && *count > 0));
    });
}

fn knock(master: SocketAddr) -> TcpStream {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match TcpStream::connect(master) {
            Ok(stream) => {
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                return stream;
            }
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads until the other side ends the connection; returns the bytes.
fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let (mut received, mut bytes) = (Vec::new(), [0; 512]);
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return received,
            Ok(count) => received.extend(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return received,
            Err(error) => panic!("it is still open: {error}"),
        }
    }
}

fn warnings() -> &'static Mutex<Vec<String>> {
    static WARNINGS: OnceLock<Mutex<Vec<String>>> = OnceLock::new();
    struct Keep;
    impl log::Log for Keep {
        fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
            metadata.level() <= log::Level::Warn
        }
        fn log(&self, record: &log::Record<'_>) {
            if self.enabled(record.metadata()) {
                warnings().lock().unwrap().push(record.args().to_string());
            }
        }
        fn flush(&self) {}
    }
    WARNINGS.get_or_init(|| {
        log::set_logger(&Keep).unwrap();
        log::set_max_level(log::LevelFilter::Debug);
        Mutex::default()
    })
}

fn warned(ports: &[u16]) -> Vec<String> {
    let ours = |line: &&String| ports.iter().any(|port| line.contains(&format!(":{port} ")));
    warnings().lock().unwrap().iter().filter(ours).cloned().collect()
}

#[test]
fn with_the_token_every_transport_works_sealed_or_not() {
    // Threads of one process need not join.
    let joined = ALL.into_iter().filter(|over| *over != Over::THREADS);
    for (over, encrypt) in joined.flat_map(|over| [(over, false), (over, true)]) {
        for world in [2, 3, 5] {
            let lengths = [0usize, 1, 7, 16_379, 16_380, 100_003, 1_000_000];
            spawn(over, world, &options(Some(TEXT), encrypt), |group| {
                for len in lengths {
                    let own = (group.rank().0 + 1) as i64;
                    let mut data: Vec<i64> = (0..len as i64).map(|i| own * i).collect();
                    group.all_reduce(&mut data, Op::Sum).unwrap();
                    let ranks = (1..=world as i64).sum::<i64>();
                    let wrong = data.iter().enumerate().find(|(i, sum)| **sum != ranks * *i as i64);
                    assert_eq!(wrong, None, "{over:?}, {world} ranks, {len} elements");
                }
                group.barrier().unwrap();
            });
        }
    }
}

#[test]
fn a_wrong_token_is_reported_soon_and_the_job_still_forms() {
    let right = over_tcp(options(Some(TEXT), false));
    undisturbed(&right, |master| {
        drop(knock(master));
        for (token, expected) in
            [(Some("not what they all know"), "token differs"), (None, "and this node has none")]
        {
            let started = Instant::now();
            let error = join(1, 3, master, &options(token, false)).err().unwrap().to_string();
            assert!(error.contains(expected) && error.contains("KOLO_TOKEN"), "{error}");
            assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        }
    });
}

#[test]
fn a_token_where_the_job_has_none_is_reported() {
    undisturbed(&options(None, false), |master| {
        drop(knock(master));
        let error = join(1, 3, master, &options(Some(TEXT), false)).err().unwrap().to_string();
        assert!(error.contains("this node has a token") && error.contains("KOLO_TOKEN"), "{error}");
    });
}

#[test]
fn all_must_agree_on_encryption() {
    let master = free_port();
    let errors: Vec<_> = std::thread::scope(|scope| {
        let start = |rank| {
            let options = over_tcp(options(Some(TEXT), rank == 1));
            scope.spawn(move || join(rank, 2, master, &options).err().map(|error| error.to_string()))
        };
        let ranks = [start(0), start(1)];
        ranks.map(|rank| rank.join().unwrap()).into_iter().flatten().collect()
    });
    assert!(errors.iter().any(|error| error.contains("KOLO_ENCRYPT is 1 on rank 1, but not on rank 0")));
}

#[test]
fn encryption_without_a_token_is_refused() {
    let error = join(0, 2, free_port(), &options(None, true)).err().unwrap().to_string();
    assert!(error.contains("KOLO_ENCRYPT") && error.contains("KOLO_TOKEN"), "{error}");
}

#[test]
fn without_a_token_only_loopback() {
    let elsewhere: SocketAddr = "192.0.2.1:29500".parse().unwrap();
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, free_port().port()));
    for (rank, master) in [(0, elsewhere), (1, elsewhere), (0, everywhere)] {
        let started = Instant::now();
        let error = join(rank, 2, master, &options(None, false)).err().unwrap().to_string();
        for word in ["MASTER_ADDR", "--token-file", "KOLO_TOKEN"] {
            assert!(error.contains(word), "{error}");
        }
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn garbage_and_half_open_connections_disturb_nobody() {
    warnings();
    let disturbed = |token: Option<&str>| {
        let mut ports = Vec::new();
        undisturbed(&over_tcp(options(token, false)), |master| {
            let mut open = Vec::new();
            for bytes in [
                &b"GET / HTTP/1.1\r\n\r\n"[..],
                &[0xff; 4096],
                b"kolo",
                b"",
                b"kolo\x01sp\n\xff\xff",
                b"kolo\x01se\n\x30\x00",
                b"kolo\x02sp\n\0\0",
            ] {
                let mut stream = knock(master);
                ports.push(stream.local_addr().unwrap().port());
                stream.write_all(bytes).unwrap();
                open.push(stream);
            }
            // Connections that send nothing more are kept for at most the five seconds of the handshake.
            let started = Instant::now();
            open.into_iter().for_each(|stream| drop(until_closed(stream)));
            assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        });
        let lines = warned(&ports);
        let strangers = lines.iter().filter(|line| line.contains("does not speak")).count();
        assert_eq!(strangers, 1, "once, however many there are: {lines:?}");
        assert!(lines.iter().any(|line| line.contains("in time")), "{lines:?}");
    };
    // Both jobs wait for the handshakes' deadlines, so they do at the same time.
    std::thread::scope(|scope| {
        scope.spawn(|| disturbed(None));
        scope.spawn(|| disturbed(Some(TEXT)));
    });
}

#[test]
fn a_flood_of_connections_disturbs_nobody() {
    for token in [None, Some(TEXT)] {
        undisturbed(&over_tcp(options(token, false)), |master| {
            drop(knock(master));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let flood: Vec<TcpStream> = (0..125).map(|_| knock(master)).collect();
                        std::thread::sleep(Duration::from_millis(200));
                        drop(flood);
                    });
                }
                // A worker arrives during the flood.
                let strange = options(Some("not what they all know"), false);
                join(1, 3, master, &strange).err().unwrap();
            });
        });
    }
}

/// A proxy between workers and the store, which records everything that they send and can change bits of it.
struct Proxy {
    address: SocketAddr,
    recorded: Arc<Mutex<Vec<Vec<u8>>>>,
    /// While true, the proxy flips one bit of each piece that the worker sends.
    tamper: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Proxy {
    fn start(master: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Proxy { address, recorded: Arc::default(), tamper: Arc::default(), stop: Arc::default() };
        let (recorded, tamper, stop) = (proxy.recorded.clone(), proxy.tamper.clone(), proxy.stop.clone());
        std::thread::spawn(move || {
            for worker in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let store = knock(master);
                store.set_read_timeout(None).unwrap();
                let number = {
                    let mut recorded = recorded.lock().unwrap();
                    recorded.push(Vec::new());
                    recorded.len() - 1
                };
                let (recorded, tamper) = (recorded.clone(), tamper.clone());
                let (from, to) = (worker.try_clone().unwrap(), store.try_clone().unwrap());
                std::thread::spawn(move || {
                    pass(from, to, |bytes| {
                        recorded.lock().unwrap()[number].extend(&*bytes);
                        if tamper.load(Ordering::SeqCst) {
                            bytes[bytes.len() / 2] ^= 1;
                        }
                    })
                });
                std::thread::spawn(move || pass(store, worker, |_| {}));
            }
        });
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&mut [u8])) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        look(&mut bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_recorded_call_played_again_gets_nowhere() {
    warnings();
    let (master, stop) = (free_port(), AtomicBool::new(false));
    let options = over_tcp(options(Some(TEXT), false));
    let (options, stop) = (&options, &stop);
    std::thread::scope(|scope| {
        let zero = scope.spawn(move || work(&join(0, 2, master, options).unwrap(), stop));
        drop(knock(master));
        let proxy = Proxy::start(master);
        let through = proxy.address;
        let one = scope.spawn(move || work(&join(1, 2, through, options).unwrap(), stop));
        let until = Instant::now() + Duration::from_secs(20);
        while proxy.recorded.lock().unwrap().iter().filter(|call| call.len() > 100).count() < 2 {
            assert!(Instant::now() < until, "the worker does not come");
            std::thread::sleep(Duration::from_millis(5));
        }
        let recorded = proxy.recorded.lock().unwrap().clone();
        let mut ports = Vec::new();
        for call in recorded.iter().chain(&recorded) {
            let mut stream = knock(master);
            ports.push(stream.local_addr().unwrap().port());
            // The store may hang up before it has received everything.
            let _ = stream.write_all(call);
            let answer = until_closed(stream);
            // At most message 2 of a handshake that nobody can complete, and the refusal.
            assert!(answer.len() <= 2 + 48 + 3, "{} bytes", answer.len());
        }
        stop.store(true, Ordering::SeqCst);
        assert_eq!(zero.join().unwrap(), one.join().unwrap());
        let lines = warned(&ports);
        assert_eq!(lines.len(), 1, "once, however often: {lines:?}");
        assert!(lines[0].contains("does not know the job's token"), "{lines:?}");
    });
}

#[test]
fn a_changed_bit_on_the_way_to_the_store_is_an_error() {
    let master = free_port();
    let options = over_tcp(options(Some(TEXT), true));
    let options = &options;
    std::thread::scope(|scope| {
        let zero = scope.spawn(move || {
            let group = join(0, 2, master, options).unwrap();
            (0..1000).find_map(|_| {
                std::thread::sleep(Duration::from_millis(10));
                group.barrier().err()
            })
        });
        drop(knock(master));
        let proxy = Proxy::start(master);
        let group = join(1, 2, proxy.address, options).unwrap();
        group.barrier().unwrap();
        proxy.tamper.store(true, Ordering::SeqCst);
        // The report goes through the proxy, so the store rejects it and takes the worker for dead.
        group.abandon("the test ends");
        drop(group);
        let error = zero.join().unwrap().expect("an error").to_string();
        assert_eq!(error, "rank 1 died");
    });
}

/// One of two ranks never joins, and the process that serves the store learns that.
#[test]
fn a_rank_gives_up_a_group_that_is_over() {
    let options = options(None, false);
    let access = kolo_rendezvous::secure::Access::new(None, false).unwrap();
    let server = kolo_rendezvous::store::Server::start((Ipv4Addr::LOCALHOST, 0).into(), 2, &access).unwrap();
    let endpoint = server.address().unwrap().into();
    let place = WorkerEnv { rank: Rank(0), world_size: 2, endpoint };
    let began = Instant::now();
    let is_over = || began.elapsed() > Duration::from_millis(300);
    let error = Group::join_served(&place, &options, &is_over).err().unwrap();
    assert_eq!(error.to_string(), "rank 0 gave up: its group is over; rank 1 never joined it");
    assert!(began.elapsed() < options.timeout.unwrap() / 2, "{:?}", began.elapsed());
}
