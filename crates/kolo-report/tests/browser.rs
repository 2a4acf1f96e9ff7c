//! The page in a browser: it loads nothing, violates no policy, and is no wider than a phone.
//!
//! The tests are ignored if there is no Chromium.

mod folder;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use folder::write_run;
use kolo_report::Report;
use libtest_mimic::{Arguments, Completion, Trial};

/// Longer than the browser takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Width of a phone in CSS pixels.
const PHONE: u32 = 390;

fn main() {
    let trials = vec![
        trial("a_page_asks_for_nothing_and_nothing_is_refused", asks_for_nothing),
        trial("nothing_is_wider_than_a_phone", fits_a_phone),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn trial(name: &str, test: fn(&Path)) -> Trial {
    Trial::ignorable_test(name, move || match chromium() {
        Some(browser) => {
            test(&browser);
            Ok(Completion::Completed)
        }
        None => Ok(Completion::ignored_with("Chromium is not installed")),
    })
}

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path).collect::<Vec<_>>();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.iter().find_map(|name| places.iter().map(|place| place.join(name)).find(|file| file.is_file()))
}

fn page(place: &Path) -> String {
    let folders =
        ["one", "a-run-whose-name-is-as-long-as-names-of-folders-are-where-people-write-down-all-they-know"];
    let folders = folders.map(|name| place.join(name));
    write_run(&folders[0], 700);
    write_run(&folders[1], 90);
    Report::read(&folders).unwrap().html()
}

/// Opens a page; returns the final document and the browser's log.
fn open(browser: &Path, place: &Path, page: &str) -> (String, String) {
    let file = place.join("page.html");
    fs::write(&file, page).unwrap();
    let [output, errors, profile] = ["output", "errors", "profile"].map(|name| place.join(name));
    let _ = fs::remove_dir_all(&profile);
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
        ])
        .args(["--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(fs::File::create(&output).unwrap())
        .stderr(fs::File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the browser takes longer than {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    (read(&output), read(&errors))
}

/// The policy blocks every request of a page, and the browser's console reports it.
fn asks_for_nothing(browser: &Path) {
    let place = tempfile::tempdir().unwrap();
    let page = page(place.path());
    let (document, log) = open(browser, place.path(), &page);
    assert!(document.contains("What ran, side by side"), "{document} {log}");
    assert!(!log.contains("CONSOLE"), "{log}");
    let asking = page
        .replace("<main>", "<main><img src=\"http://127.0.0.1:9/a.png\"><script>document.title = 1</script>");
    let (document, log) = open(browser, place.path(), &asking);
    assert!(log.contains("CONSOLE") && log.contains("Content Security Policy"), "would be seen: {log}");
    assert!(!document.contains("<title>1</title>"), "no script runs");
}

/// Adds a script to a copy of the page that opens all tables and measures. The copy is in a frame, because
/// windows cannot be as narrow as a phone.
fn fits_a_phone(browser: &Path) {
    let place = tempfile::tempdir().unwrap();
    let script = "<script>
        document.querySelectorAll('details').forEach(details => details.open = true);
        const cut = [...document.querySelectorAll('svg text')].filter(text => {
            const [box, plane] = [text.getBBox(), text.ownerSVGElement.viewBox.baseVal];
            return box.x < 0 || box.y < 0 || box.x + box.width > plane.width || box.y + box.height > plane.height;
        });
        parent.document.title = `width ${innerWidth} of ${document.documentElement.scrollWidth}, cut: ` +
            cut.map(text => text.textContent).join(' | ') + '.';
    </script></body>";
    let policy = page(place.path()).replace("default-src 'none'", "script-src 'unsafe-inline'");
    let measured = policy.replace("</body>", script).replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!("<!doctype html><iframe width={PHONE} height=800 srcdoc=\"{measured}\"></iframe>");
    let (document, log) = open(browser, place.path(), &frame);
    let title = document.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    assert_eq!(title, Some(&*format!("width {PHONE} of {PHONE}, cut: .")), "{log}");
}
