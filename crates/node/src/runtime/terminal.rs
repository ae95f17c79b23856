//! A terminal in canonical mode: it echoes keys, edits a line, and passes on whole lines.

use std::time::Duration;

use bytes::Bytes;

use crate::shell::{Input, Typed};

/// The longest line.
const MAX_LINE: usize = 4_096;
/// The most input; the output of a process may depend on all of it.
pub(crate) const MAX_INPUT: usize = 1024 * 1024;

/// The input of a client so far.
#[derive(Default)]
pub(super) struct Typing {
    pub input: Input,
    size: usize,
}

impl Typing {
    /// Adds input; `None` is its end. Returns what the terminal echoes.
    pub(super) fn receive(
        &mut self,
        at: Duration,
        data: Option<Bytes>,
        terminal: Option<&mut Terminal>,
    ) -> Result<Vec<u8>, String> {
        let Some(data) = data else {
            self.input.push((at, Typed::End));
            return Ok(Vec::new());
        };
        self.size += data.len();
        if self.size > MAX_INPUT {
            return Err(format!(
                "the input of a simulated command is limited to {MAX_INPUT} bytes"
            ));
        }
        let (shown, typed) = match terminal {
            Some(terminal) => terminal.keys(&data),
            None => (Vec::new(), vec![Typed::Data(data.into())]),
        };
        self.input
            .extend(typed.into_iter().map(|typed| (at, typed)));
        Ok(shown)
    }
}

/// A terminal in canonical mode.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    line: Vec<u8>,
}

impl Terminal {
    /// The echo of some keys, and the input for the program.
    pub(super) fn keys(&mut self, keys: &[u8]) -> (Vec<u8>, Vec<Typed>) {
        let (mut shown, mut typed) = (Vec::new(), Vec::new());
        for key in keys {
            match key {
                b'\r' | b'\n' => {
                    shown.extend_from_slice(b"\r\n");
                    self.line.push(b'\n');
                    typed.push(Typed::Data(std::mem::take(&mut self.line)));
                }
                // Backspace, and delete.
                0x08 | 0x7f => {
                    if self.erase() {
                        shown.extend_from_slice(b"\x08 \x08");
                    }
                }
                // Control-C.
                0x03 => {
                    shown.extend_from_slice(b"^C\r\n");
                    self.line.clear();
                    typed.push(Typed::Interrupt);
                }
                // Control-D.
                0x04 => typed.push(match self.line.is_empty() {
                    true => Typed::End,
                    false => Typed::Data(std::mem::take(&mut self.line)),
                }),
                // Control-U.
                0x15 => {
                    while self.erase() {
                        shown.extend_from_slice(b"\x08 \x08");
                    }
                }
                key if self.line.len() < MAX_LINE => {
                    shown.push(*key);
                    self.line.push(*key);
                }
                _ => shown.push(0x07),
            }
        }
        (shown, typed)
    }

    /// Erases the last character; false if there is none.
    fn erase(&mut self) -> bool {
        let letter = self.line.iter().rposition(|byte| byte & 0xc0 != 0x80);
        letter.inspect(|start| self.line.truncate(*start)).is_some()
    }
}

/// Output for a terminal: a line feed needs a carriage return.
pub(super) fn cooked(text: &str) -> String {
    text.replace('\n', "\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_echoed_corrected_and_handed_on() {
        let mut terminal = Terminal::default();
        assert_eq!(terminal.keys(b"ech"), (b"ech".to_vec(), vec![]));
        let (shown, typed) = terminal.keys("p\x7fo ü\x7fx\r".as_bytes());
        assert_eq!(shown, "p\x08 \x08o ü\x08 \x08x\r\n".as_bytes());
        assert_eq!(typed, [Typed::Data(b"echo x\n".to_vec())]);
        assert_eq!(
            terminal.keys(b"\x7f"),
            (vec![], vec![]),
            "nothing is left to erase"
        );
        assert_eq!(
            terminal.keys(b"ab\x15\x04"),
            (b"ab\x08 \x08\x08 \x08".to_vec(), vec![Typed::End])
        );
        assert_eq!(
            terminal.keys(b"a\x03"),
            (b"a^C\r\n".to_vec(), vec![Typed::Interrupt])
        );
    }
}
