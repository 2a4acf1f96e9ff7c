//! Device groups without a GPU: the errors for missing parts, and the code around the GPU, over fakes of
//! CUDA and NCCL (`fake_gpu`). `kolo bench all-reduce --backend nccl` shows what only a GPU can show.

use std::sync::Arc;

use kolo_comm::{Collectives, Group};
use kolo_nccl::DeviceGroup;

/// Without a driver, as in CI, there is one error. With one, the group forms or another part is missing.
#[test]
fn a_missing_driver_is_one_clear_sentence() {
    let Err(error) = DeviceGroup::local(&Arc::new(Group::alone())) else { return };
    let error = error.to_string();
    let known = [
        "cannot load CUDA's driver libcuda.so.1 or libcuda.so: ",
        "cannot load libnccl",
        "CUDA's driver is there",
    ];
    assert!(known.iter().any(|message| error.starts_with(message)), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

mod faked {
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use kolo_comm::{Collective, Error, Op, Options, Rank, threads};
    use kolo_testing::{assert_same_results, selected};

    use super::*;

    /// Longer than any test takes on the busiest machine; only a hang gets there.
    const HANG: Duration = Duration::from_secs(120);
    const INSIDE: &str = "KOLO_TEST_FAKE_GPU";

    /// Returns a file that `cargo build -p kolo-nccl --examples` has built.
    fn example(file: &str) -> PathBuf {
        let built = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples").join(file);
        assert!(built.exists(), "{} is missing: cargo build -p kolo-nccl --examples", built.display());
        built
    }

    /// Creates a folder with the fakes under the names of the libraries.
    fn fakes(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("kolo-fake-gpu-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // Both names of CUDA: cudarc looks for the second, this crate for the first.
        for link in ["libcuda.so.1", "libcuda.so", "libnccl.so.2"] {
            symlink(example("libfake_gpu.so"), folder.join(link)).unwrap();
        }
        folder
    }

    fn over_fakes(program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", folder).stdin(Stdio::null());
        command
    }

    /// Returns true if this process has the fakes. If not, runs the test again in a process that has
    /// them: the libraries are chosen when a process starts.
    fn inside(name: &str, settings: &[(&str, &str)]) -> bool {
        if std::env::var_os(INSIDE).is_some() {
            return true;
        }
        let program = std::env::current_exe().unwrap();
        let folder = fakes(name);
        let mut test = over_fakes(&program, &folder)
            .args([&format!("faked::{name}"), "--exact", "--nocapture"])
            .env(INSIDE, "1")
            .envs(settings.iter().copied())
            .spawn()
            .unwrap();
        let until = Instant::now() + HANG;
        let status = loop {
            match test.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() > until => break None,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        if status.is_none() {
            test.kill().unwrap();
            test.wait().unwrap();
        }
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(status.is_some_and(|status| status.success()), "{name} over stand-ins: {status:?}");
        false
    }

    /// Runs `work` on every rank, each with the device of its number.
    fn on_devices<R: Send>(
        world: usize,
        timeout: Duration,
        work: impl Fn(DeviceGroup) -> R + Sync,
    ) -> Vec<Result<R, Error>> {
        let options = Options { timeout: Some(timeout), ..Options::default() };
        let groups = threads::groups(world, &options).unwrap();
        let work = &work;
        std::thread::scope(|scope| {
            let run = |group: Group| {
                scope.spawn(move || {
                    let device = group.rank().0;
                    DeviceGroup::new(&Arc::new(group), device).map(work)
                })
            };
            let threads: Vec<_> = groups.into_iter().map(run).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    const PATIENT: Duration = Duration::from_secs(60);

    #[test]
    fn every_operation_on_every_type_agrees_with_the_native_group() {
        if !inside("every_operation_on_every_type_agrees_with_the_native_group", &[]) {
            return;
        }
        for world in selected(2, [1, 3, 2, 4]) {
            let compare = |devices: DeviceGroup| assert_same_results(&devices, &**devices.group());
            for compared in on_devices(world, PATIENT, compare) {
                assert!(compared.unwrap() > 100, "on {world} ranks");
            }
        }
    }

    #[test]
    #[ignore = "slow: bash .ci/slow runs it"]
    fn the_example_runs() {
        let folder = fakes("the_example_runs");
        let ended = over_fakes(&example("all_reduce"), &folder).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let output = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && output.contains("results are the native group's"), "{ended:?}");
        assert!(output.contains("100000000 bytes: "), "{output}");
    }

    #[test]
    fn collectives_run_in_the_order_in_which_they_were_started() {
        if !inside("collectives_run_in_the_order_in_which_they_were_started", &[]) {
            return;
        }
        let sums = on_devices(3, PATIENT, |devices| {
            let start = |value: f32| {
                devices.start(Collective::AllReduce(Op::Sum), devices.copied(&vec![value; 1000]).unwrap())
            };
            let pending: Vec<_> = (0..5).map(|value| start(value as f32)).collect();
            // A collective that is never awaited does not matter.
            drop(start(9.0));
            let sums: Vec<f32> = pending
                .into_iter()
                .map(|pending| devices.to_vec(&pending.wait().unwrap()).unwrap()[999])
                .collect();
            devices.barrier().unwrap();
            sums
        });
        sums.into_iter().for_each(|sums| assert_eq!(sums.unwrap(), [0.0, 3.0, 6.0, 9.0, 12.0]));
    }

    #[test]
    fn wrong_calls_are_refused_and_harm_nobody() {
        if !inside("wrong_calls_are_refused_and_harm_nobody", &[]) {
            return;
        }
        on_devices(2, PATIENT, |devices| {
            let refused = |result: Result<_, Error>, message: &str| match result {
                Err(error) if error.is_refusal() => assert!(error.to_string().contains(message), "{error}"),
                other => panic!("{other:?}"),
            };
            let buffer = || devices.alloc::<f32>(3).unwrap();
            refused(devices.all_gather(buffer()), "do not divide into 2 equal chunks");
            refused(devices.broadcast(buffer(), Rank(2)), "the group has 2 ranks");
            refused(devices.all_to_all(buffer()), "3 elements are not a multiple of 2 × 2 ranks");
            refused(devices.write(&[1.0], &mut buffer()).map(|()| buffer()), "1 elements in and 3");
            refused(devices.send(buffer(), devices.rank()), "no rank sends to itself");
            let there = Rank(1 - devices.rank().0);
            let swapped = match devices.rank().0 {
                0 => devices.send(devices.copied(&[5i32]).unwrap(), there).unwrap(),
                _ => devices.receive(devices.copied(&[0i32]).unwrap(), there).unwrap(),
            };
            assert_eq!(devices.to_vec(&swapped).unwrap(), [5]);
            assert!(devices.alloc::<f64>(0).unwrap().is_empty());
        })
        .into_iter()
        .for_each(|result| result.unwrap());
    }

    #[test]
    fn a_rank_that_gives_up_is_named_and_everything_fails_alike() {
        if !inside("a_rank_that_gives_up_is_named_and_everything_fails_alike", &[]) {
            return;
        }
        let began = Instant::now();
        let errors = on_devices(3, PATIENT, |devices| {
            devices.barrier().unwrap();
            if devices.rank() == Rank(1) {
                std::thread::sleep(Duration::from_millis(100));
                devices.group().abandon("its disk is full");
                return devices.barrier().unwrap_err().to_string();
            }
            let first = devices.barrier().unwrap_err().to_string();
            let later = devices.alloc::<f32>(1).unwrap_err().to_string();
            let native = devices.group().barrier().unwrap_err().to_string();
            assert_eq!((&later, &native), (&first, &first));
            first
        });
        for error in errors {
            assert_eq!(error.unwrap(), "rank 1 gave up: its disk is full");
        }
        assert!(began.elapsed() < PATIENT / 2);
    }

    #[test]
    fn the_rank_that_does_not_come_is_named() {
        if !inside("the_rank_that_does_not_come_is_named", &[]) {
            return;
        }
        let limit = Duration::from_millis(1500);
        let errors = on_devices(3, limit, |devices| {
            devices.barrier().unwrap();
            if devices.rank() == Rank(2) {
                std::thread::sleep(2 * limit);
                return devices.barrier().unwrap_err().to_string();
            }
            devices.all_reduce(devices.alloc::<f32>(7).unwrap(), Op::Sum).unwrap_err().to_string()
        });
        for error in errors {
            let error = error.unwrap();
            assert!(error.starts_with("rank 2 did not take part in all_reduce of 7 f32 by NCCL"), "{error}");
        }
    }

    #[test]
    fn a_rank_that_has_left_is_named() {
        if !inside("a_rank_that_has_left_is_named", &[]) {
            return;
        }
        let errors = on_devices(2, PATIENT, |devices| match devices.rank().0 {
            0 => None,
            _ => Some(devices.barrier().unwrap_err().to_string()),
        });
        let error = errors.into_iter().nth(1).unwrap().unwrap().unwrap();
        assert!(
            error.starts_with("rank 0 left the group while others still waited for it in barrier"),
            "{error}"
        );
    }

    #[test]
    fn too_few_devices_are_an_error_on_every_rank() {
        if !inside("too_few_devices_are_an_error_on_every_rank", &[("FAKE_DEVICES", "2")]) {
            return;
        }
        let errors: Vec<String> = on_devices(3, PATIENT, |_| ())
            .into_iter()
            .map(|result| result.unwrap_err().to_string())
            .collect();
        let problem = "there is no CUDA device 2: this process sees 2 CUDA devices";
        let reported = format!("rank 2 cannot take part in NCCL: {problem}");
        assert_eq!(errors, [reported.clone(), reported, problem.into()]);
    }

    #[test]
    fn a_driver_without_a_device_is_reported() {
        if !inside("a_driver_without_a_device_is_reported", &[("FAKE_DEVICES", "0")]) {
            return;
        }
        let error = DeviceGroup::local(&Arc::new(Group::alone())).err().unwrap().to_string();
        assert!(error.contains("no CUDA-capable device is detected"), "{error}");
    }

    #[test]
    fn a_missing_nccl_is_named() {
        let name = "a_missing_nccl_is_named";
        if !inside(name, &[("KOLO_NCCL_LIBRARY", "/nowhere/libnccl.so.2")]) {
            return;
        }
        let error = DeviceGroup::local(&Arc::new(Group::alone())).err().unwrap().to_string();
        assert!(error.starts_with("cannot load /nowhere/libnccl.so.2: "), "{error}");
        assert!(error.contains("libnccl2") && error.contains("KOLO_NCCL_LIBRARY=PATH"), "{error}");
    }
}
