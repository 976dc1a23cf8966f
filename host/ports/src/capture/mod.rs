// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Capture files as ports, and their formats.

mod reader;
mod writer;

use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use weir_switch::{Frame, FramePool};

pub use reader::{CaptureReader, CapturedFrame};
pub use writer::CaptureWriter;

use crate::error::PortError;
use crate::pool::Pool;
use crate::port::{FramePort, PortStatistics};
use crate::sys;

/// A port that receives what a file holds, as fast as it is asked, and writes what it is sent to
/// another file with the time of sending. For tests and experiments: file access may block.
#[derive(Debug)]
pub struct CapturePort {
    name: String,
    reader: Option<CaptureReader<BufReader<File>>>,
    writer: Option<CaptureWriter<BufWriter<File>>>,
    /// A frame that was read and found no chunk.
    waiting: Option<CapturedFrame>,
    counted: PortStatistics,
    failed: Option<io::Error>,
}

impl CapturePort {
    /// Opens one file or both; the one to write is made anew.
    ///
    /// # Errors
    /// A file cannot be opened, or is no capture of Ethernet frames.
    pub fn open(input: Option<&Path>, output: Option<&Path>) -> Result<Self, PortError> {
        let failed = |path: &Path, step| {
            let name = path.display().to_string();
            move |error| PortError::system(&name, step, error)
        };
        let reader = match input {
            Some(path) => {
                let file = File::open(path).map_err(failed(path, "open the capture file"))?;
                let reader = CaptureReader::new(BufReader::new(file));
                Some(reader.map_err(failed(path, "read the capture file"))?)
            }
            None => None,
        };
        let writer = match output {
            Some(path) => {
                let file = File::create(path).map_err(failed(path, "make the capture file"))?;
                let writer = CaptureWriter::new(BufWriter::new(file));
                Some(writer.map_err(failed(path, "write the capture file"))?)
            }
            None => None,
        };
        let name = input.or(output).map_or_else(|| PathBuf::from("capture"), Path::to_path_buf);
        let name = name.display().to_string();
        let counted = PortStatistics::default();
        Ok(Self { name, reader, writer, waiting: None, counted, failed: None })
    }

    /// Returns whether all frames of the file have been received.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.reader.is_none() && self.waiting.is_none()
    }

    /// Returns the last error that ended the reading of a file or lost a frame on writing, once.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    /// Returns the next frame of the file that fits a chunk; counts those that do not.
    fn next(&mut self, pool: &Pool) -> Option<CapturedFrame> {
        if let Some(waiting) = self.waiting.take() {
            return Some(waiting);
        }
        loop {
            match self.reader.as_mut()?.read() {
                Ok(Some(captured)) => {
                    let whole = captured.bytes.len() == captured.length;
                    if whole && captured.length <= pool.frame_max() as usize {
                        return Some(captured);
                    }
                    self.counted.receive_dropped += 1;
                }
                Ok(None) => self.reader = None,
                Err(error) => {
                    self.failed = Some(error);
                    self.reader = None;
                }
            }
        }
    }
}

impl FramePort for CapturePort {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, pool: &mut Pool, max: usize, out: &mut Vec<Frame>) -> usize {
        let first = out.len();
        let most = out.capacity().min(first.saturating_add(max));
        while out.len() < most {
            let Some(captured) = self.next(pool) else { break };
            let Some(frame) = pool.copy_in(&captured.bytes) else {
                self.waiting = Some(captured);
                break;
            };
            self.counted.received.packets += 1;
            self.counted.received.bytes += u64::from(frame.len);
            out.push(frame);
        }
        out.len() - first
    }

    /// Returns a bound that keeps batches alike on all ports: a file takes any number.
    fn transmit_room(&mut self, _pool: &mut Pool) -> usize {
        TRANSMIT_BATCH
    }

    /// Writes the frame at once; without a file to write to, only counts and frees it.
    fn transmit(&mut self, pool: &mut Pool, frame: Frame) -> Result<(), Frame> {
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.write(sys::wall_clock_nanos(), pool.data(frame))
        {
            self.failed = Some(error);
            self.counted.transmit_invalid += 1;
        }
        self.counted.transmitted.packets += 1;
        self.counted.transmitted.bytes += u64::from(frame.len);
        pool.free(frame.id);
        Ok(())
    }

    fn flush(&mut self, _pool: &mut Pool) -> io::Result<usize> {
        self.writer.as_mut().map_or(Ok(()), CaptureWriter::flush).map(|()| 0)
    }

    fn pending(&mut self) -> usize {
        0
    }

    fn statistics(&mut self) -> PortStatistics {
        self.counted
    }
}

const TRANSMIT_BATCH: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let path = std::env::temp_dir().join(format!("weir-{}.pcap", std::process::id()));
        let mut pool = Pool::new(16, 2048).unwrap();
        let mut out = CapturePort::open(None, Some(&path)).unwrap();
        for len in [60, 61, 1514] {
            let frame = pool.copy_in(&vec![7; len]).unwrap();
            out.transmit(&mut pool, frame).unwrap();
        }
        out.flush(&mut pool).unwrap();
        let mut input = CapturePort::open(Some(&path), None).unwrap();
        let mut frames = Vec::with_capacity(2);
        assert_eq!(input.receive(&mut pool, 10, &mut frames), 2, "the capacity of the list");
        frames.drain(..).for_each(|frame| pool.free(frame.id));
        assert_eq!(input.receive(&mut pool, 10, &mut frames), 1);
        assert_eq!(pool.data(frames[0]), [7; 1514]);
        assert!(input.finished() && input.take_error().is_none());
        assert_eq!(input.statistics().received, out.statistics().transmitted);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = CapturePort::open(Some(Path::new("/nonexistent/x.pcap")), None).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/x.pcap: cannot open"), "{error}");
    }
}
