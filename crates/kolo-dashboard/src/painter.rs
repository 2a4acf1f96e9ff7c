//! The thread that draws. The training thread only changes the state: a blocked terminal, for example one
//! stopped by Ctrl-S, delays neither a step nor the end of the run.

use std::convert::Infallible;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use ratatui::backend::TermionBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::state::RunState;
use crate::view;

/// Interval between two pictures.
const PERIOD: Duration = Duration::from_millis(250);

/// Maximum time for the last picture at the end of the run.
const LAST_PICTURE: Duration = Duration::from_millis(500);

/// Resets attributes and clears the screen.
const CLEAR: &[u8] = b"\x1b[0m\x1b[2J";

/// Size to use if the terminal does not report one.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// Draws a run on a terminal until it is dropped.
pub struct Painter {
    shared: Arc<Shared>,
    /// Disconnects when the thread has ended.
    ended: Receiver<Infallible>,
}

impl fmt::Debug for Painter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Painter").finish_non_exhaustive()
    }
}

struct Shared {
    run: Mutex<RunState>,
    over: Mutex<bool>,
    wake: Condvar,
}

impl Painter {
    /// Starts to draw `run` on the terminal `tty`, which a [`Screen`](crate::Screen) must hold.
    ///
    /// # Errors
    ///
    /// If the terminal cannot be opened or the thread cannot be started.
    pub fn start(tty: &Path, run: RunState) -> io::Result<Painter> {
        let tty = OpenOptions::new().read(true).write(true).open(tty)?;
        let shared = Arc::new(Shared { run: Mutex::new(run), over: Mutex::new(false), wake: Condvar::new() });
        let (working, ended) = channel();
        let of_thread = shared.clone();
        std::thread::Builder::new().name("kolo-dashboard".into()).spawn(move || {
            let _working: Sender<Infallible> = working;
            // An error means that the terminal is gone; nobody would see a report.
            let _ = draw(&of_thread, tty, std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()));
        })?;
        Ok(Painter { shared, ended })
    }

    /// Changes the state to draw.
    pub fn update(&self, change: impl FnOnce(&mut RunState)) {
        change(&mut self.shared.run.lock());
    }
}

impl Drop for Painter {
    fn drop(&mut self) {
        *self.shared.over.lock() = true;
        self.shared.wake.notify_all();
        // Nothing is ever sent: the thread disconnects, or the time is over.
        let _ = self.ended.recv_timeout(LAST_PICTURE);
    }
}

/// Draws until the run is over, without colors if the user has set NO_COLOR.
fn draw(shared: &Shared, tty: File, has_color: bool) -> io::Result<()> {
    let mut area = self::area(&tty);
    let mut terminal = cleared(&tty, area)?;
    loop {
        let now = self::area(&tty);
        if now != area {
            (area, terminal) = (now, cleared(&tty, now)?);
        }
        // A copy, so that the training thread does not wait for a picture.
        let run = shared.run.lock().clone();
        terminal.draw(|frame| {
            view::draw(frame, &run, Instant::now());
            if !has_color {
                remove_color(frame.buffer_mut());
            }
        })?;
        let mut over = shared.over.lock();
        if *over {
            return Ok(());
        }
        shared.wake.wait_for(&mut over, PERIOD);
    }
}

/// Returns a cleared terminal of this size. Ratatui's own clearing would query the terminal for its cursor
/// and wait for an answer, which a background process must not read. Its backends also query standard output
/// for the size, and that may be a file.
fn cleared(tty: &File, area: Rect) -> io::Result<Terminal<TermionBackend<BufWriter<File>>>> {
    let mut writer = BufWriter::with_capacity(64 << 10, tty.try_clone()?);
    writer.write_all(CLEAR)?;
    writer.flush()?;
    let options = TerminalOptions { viewport: Viewport::Fixed(area) };
    Terminal::with_options(TermionBackend::new(writer), options)
}

/// Gives all cells the terminal's own colors. Shapes and labels carry the same information.
fn remove_color(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        cell.set_fg(Color::Reset).set_bg(Color::Reset);
    }
}

fn area(tty: &File) -> Rect {
    let size = rustix::termios::tcgetwinsize(tty).ok().map(|size| (size.ws_col, size.ws_row));
    let (columns, lines) = size.filter(|(columns, lines)| *columns > 0 && *lines > 0).unwrap_or(DEFAULT_SIZE);
    Rect::new(0, 0, columns, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_drawn_only_where_the_user_wants_them() {
        // The sequence that sets one of the terminal's colors.
        let is_colored = |text: &str| text.contains("\x1b[38;5;");
        for has_color in [true, false] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let shared = Shared {
                run: Mutex::new(crate::state::tests::run()),
                over: Mutex::new(true),
                wake: Condvar::new(),
            };
            draw(&shared, file.reopen().unwrap(), has_color).unwrap();
            let text = std::fs::read_to_string(file.path()).unwrap();
            assert_eq!(is_colored(&text), has_color, "{text:?}");
            assert!(text.contains("fashion-mnist-small"), "{text:?}");
        }
    }

    #[test]
    fn a_file_is_drawn_on_in_the_default_size() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let painter = Painter::start(file.path(), crate::state::tests::run()).unwrap();
        drop(painter);
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(text.contains("200/400") && text.contains("fashion-mnist-small"), "{text:?}");
        Painter::start(Path::new("/nowhere/tty"), crate::state::tests::run()).err().unwrap();
    }
}
