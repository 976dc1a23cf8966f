// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Endless answers: captures, and server-sent events.

use std::io;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use tokio::runtime::Runtime;

use crate::error::broken;

/// The captured frames, as they arrive.
#[derive(Debug)]
pub struct CaptureStream {
    /// How the capture changes the path of the vif's frames, if it does.
    pub note: Option<String>,
    pub(crate) body: AnswerBody,
}

/// Events, as they arrive.
#[derive(Debug)]
pub struct EventStream {
    body: AnswerBody,
    parser: EventParser,
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerEvent {
    /// Its kind, such as `status`.
    pub name: String,
    /// Its data, JSON.
    pub data: String,
}

/// The rest of an answer, and the runtime that waits for it.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    pub(crate) runtime: Runtime,
    pub(crate) body: Incoming,
}

impl CaptureStream {
    /// Waits for the next bytes of the capture; `None` at its end.
    ///
    /// # Errors
    /// The node has gone.
    pub fn block(&mut self) -> io::Result<Option<Bytes>> {
        self.body.block(None)
    }
}

impl EventStream {
    pub(crate) fn new(body: AnswerBody) -> Self {
        Self { body, parser: EventParser::default() }
    }

    /// Waits for the next event; `None` at the end.
    ///
    /// # Errors
    /// The node has gone, nothing came for `patience`, or an event is longer than 64 MiB.
    pub fn event(&mut self, patience: Duration) -> io::Result<Option<ServerEvent>> {
        loop {
            if let Some(event) = self.parser.event() {
                return Ok(Some(event));
            }
            match self.body.block(Some(patience))? {
                None => return Ok(None),
                Some(block) => self.parser.take(&block)?,
            }
        }
    }
}

impl AnswerBody {
    fn block(&mut self, patience: Option<Duration>) -> io::Result<Option<Bytes>> {
        let Self { runtime, body } = self;
        loop {
            let frame = runtime.block_on(async {
                match patience {
                    None => Ok(body.frame().await),
                    Some(time) => tokio::time::timeout(time, body.frame()).await,
                }
            });
            match frame {
                Err(_) => {
                    let seconds = patience.unwrap_or_default().as_secs_f64();
                    let text = format!("nothing came for {seconds} s");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(broken(error)),
                Ok(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

/// Assembles events from the pieces in which they arrive.
#[derive(Debug, Default)]
struct EventParser {
    text: Vec<u8>,
    /// The length of the beginning of `text` that is known to hold no end of an event. A long event
    /// arrives in many pieces; this way each byte of it is searched only once.
    searched: usize,
}

impl EventParser {
    fn take(&mut self, block: &[u8]) -> io::Result<()> {
        if self.text.len() + block.len() > EVENT_MAX {
            let text = format!("an event of more than {EVENT_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.text.extend_from_slice(block);
        Ok(())
    }

    /// Removes and returns the first whole event. Comments, unknown fields and events without data
    /// are skipped.
    fn event(&mut self) -> Option<ServerEvent> {
        loop {
            let end = self.text[self.searched..].windows(2).position(|two| two == b"\n\n");
            let Some(end) = end.map(|end| self.searched + end) else {
                // The last byte may be the first half of the end of an event.
                self.searched = self.text.len().saturating_sub(1);
                return None;
            };
            let text = String::from_utf8_lossy(&self.text[..end]).into_owned();
            self.text.drain(..end + 2);
            self.searched = 0;
            let mut event = ServerEvent::default();
            let mut lines = 0;
            for line in text.lines() {
                let (field, value) = line.split_once(':').unwrap_or((line, ""));
                let value = value.strip_prefix(' ').unwrap_or(value);
                match field {
                    "event" => event.name = value.to_owned(),
                    "data" => {
                        if lines > 0 {
                            event.data.push('\n');
                        }
                        event.data.push_str(value);
                        lines += 1;
                    }
                    _ => {}
                }
            }
            if lines > 0 {
                return Some(event);
            }
        }
    }
}

/// The longest event: a status of ten thousand vifs is some ten megabytes.
const EVENT_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_however_they_come() {
        let text = ": hello\n\nevent: status\ndata: {\"a\":\ndata: 1}\n\nid: 4\ndata:x\n\nevent: n";
        for step in 1..text.len() {
            let mut parser = EventParser::default();
            let mut seen = Vec::new();
            for piece in text.as_bytes().chunks(step) {
                parser.take(piece).unwrap();
                seen.extend(std::iter::from_fn(|| parser.event()));
            }
            let event =
                |name: &str, data: &str| ServerEvent { name: name.into(), data: data.into() };
            assert_eq!(seen, [event("status", "{\"a\":\n1}"), event("", "x")], "steps of {step}");
        }
    }

    /// A status of many vifs arrives in thousands of pieces.
    #[test]
    fn each_byte_of_a_long_event_is_searched_once() {
        let mut parser = EventParser::default();
        for pieces in 1..=100 {
            parser.take(&[b'x'; 1000]).unwrap();
            assert_eq!(parser.event(), None);
            assert_eq!(parser.searched, 1000 * pieces - 1);
        }
        parser.take(b"\ndata: end\n\ndata: next").unwrap();
        assert_eq!(parser.event().unwrap().data, "end");
        assert_eq!((parser.searched, parser.event()), (0, None));
    }

    #[test]
    fn an_event_without_an_end_is_refused() {
        let mut parser = EventParser::default();
        let piece = vec![b'x'; EVENT_MAX / 2];
        parser.take(&piece).unwrap();
        parser.take(&piece).unwrap();
        assert!(parser.take(b"x").unwrap_err().to_string().contains("67108864"));
    }
}
