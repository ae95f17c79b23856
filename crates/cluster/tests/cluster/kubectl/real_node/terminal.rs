//! kubectl at a terminal, which a user types at and resizes.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use nix::unistd::ttyname;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::{Kubectl, text};
use crate::process::STEP_TIMEOUT;

/// How long an answer of a shell may take before it is asked again.
const PATIENCE: Duration = Duration::from_millis(500);
/// How many pieces of output may wait to be looked at.
const MAX_PIECES: usize = 1024;

/// A kubectl whose terminal this is.
pub(super) struct Terminal {
    child: Child,
    master: File,
    /// The device of its side.
    device: PathBuf,
    output: mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    /// A terminal of 24 lines and 80 columns.
    pub(super) fn start(kubectl: &Kubectl, websocket: bool, arguments: &[&str]) -> Terminal {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let device = ttyname(&pty.slave).unwrap();
        let plain = kubectl.over(websocket, arguments);
        let plain = plain.as_std();
        // Signals of a terminal are for the session whose terminal it is.
        let mut command = Command::new("setsid");
        command
            .arg("--ctty")
            .arg(plain.get_program())
            .args(plain.get_args())
            .envs(
                plain
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .stdin(Stdio::from(pty.slave.try_clone().unwrap()))
            .stdout(Stdio::from(pty.slave.try_clone().unwrap()))
            .stderr(Stdio::from(pty.slave))
            .kill_on_drop(true);
        let child = command.spawn().unwrap();
        let master = File::from(pty.master);
        let (sender, output) = mpsc::channel(MAX_PIECES);
        let mut reads = master.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // It fails once kubectl has ended.
            while let Ok(n) = reads.read(&mut piece) {
                if n == 0 || sender.blocking_send(piece[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal {
            child,
            master,
            device,
            output,
            seen: String::new(),
        }
    }

    pub(super) fn enter(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Enters a line until the answer to it is seen.
    pub(super) async fn ask(&mut self, line: &str, answer: &str) {
        for _ in 0..100 {
            self.enter(&format!("{line}\n"));
            while let Ok(Some(piece)) = timeout(PATIENCE, self.output.recv()).await {
                self.seen += &text(&piece);
                if self.seen.contains(answer) {
                    return;
                }
            }
        }
        panic!("{line} is not answered with {answer:?}: {:?}", self.seen);
    }

    pub(super) async fn resize(&self, rows: u16, columns: u16) {
        let mut command = Command::new("stty");
        command.arg("-F").arg(&self.device);
        command.args(["rows", &rows.to_string(), "cols", &columns.to_string()]);
        assert!(command.status().await.unwrap().success());
    }

    /// Waits until kubectl ends. Returns its exit code.
    pub(super) async fn ended(mut self) -> Option<i32> {
        let ended = timeout(STEP_TIMEOUT, self.child.wait()).await;
        let Ok(status) = ended else {
            panic!("kubectl does not end: {:?}", self.seen);
        };
        status.unwrap().code()
    }
}
