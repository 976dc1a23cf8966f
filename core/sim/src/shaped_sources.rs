// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Senders behind a shaper: video, and clients that wait for an answer before they ask again.

use weir_units::{BitRate, Instant, Nanos};

use crate::EventQueue;
use crate::shaper::ShapedSource;

/// Video over RTP: 25 frames a second, one of twelve three times as long as the others.
///
/// A frame leaves its encoder at once, as packets of up to [`VIDEO_PACKET`] bytes. Lengths are
/// computed from the sum of all frames before, so that the rate is exact.
#[derive(Clone, Debug)]
pub struct VideoSource {
    rate: BitRate,
    start: Instant,
    frame: u64,
    /// Bytes of this frame that were not offered yet.
    left: u64,
}

impl VideoSource {
    /// Makes a stream of this rate, headers included, from `start` on.
    #[must_use]
    pub fn new(rate: BitRate, start: Instant) -> Self {
        let mut source = Self { rate, start, frame: 0, left: 0 };
        source.left = source.bytes_before(1);
        source
    }

    /// Returns the bytes of the first `frames` frames.
    fn bytes_before(&self, frames: u64) -> u64 {
        let (groups, rest) = (frames / GROUP, frames % GROUP);
        let parts_of_group = GROUP - 1 + INTRA;
        let parts = groups * parts_of_group + if rest > 0 { INTRA + rest - 1 } else { 0 };
        // A group takes as long as its frames.
        let group_bits = u128::from(self.rate.as_bps()) * u128::from(GROUP) / u128::from(FPS);
        let bits = group_bits * u128::from(parts) / u128::from(parts_of_group);
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }
}

impl ShapedSource for VideoSource {
    fn due(&self) -> Instant {
        self.start + Nanos::new(self.frame * 1_000_000_000 / FPS)
    }

    fn offer(&mut self, _: Instant) -> Option<u32> {
        let bytes = self.left.min(VIDEO_PACKET);
        self.left -= bytes;
        if self.left == 0 {
            self.frame += 1;
            self.left = self.bytes_before(self.frame + 1) - self.bytes_before(self.frame);
        }
        u32::try_from(bytes).ok()
    }

    fn outcome(&mut self, _: Instant, _: Option<Instant>) {}
}

/// Clients of a web server, such as `ab`: each opens a connection, asks for a file, and does so
/// again once it has it. The shaper holds what the server sends.
///
/// A connection begins with a window of ten segments, and each segment that is acknowledged lets
/// two more go (RFC 6928, RFC 5681). A segment that was refused is offered again after a time-out.
#[derive(Debug)]
pub struct HttpClients {
    /// Segments of an answer.
    segments: u32,
    round_trip: Nanos,
    /// The number of active clients from each instant on, in order of time.
    steps: Vec<(Instant, u32)>,
    clients: Vec<HttpClient>,
    events: EventQueue<HttpEvent>,
    offered: Option<HttpEvent>,
    /// When answers were complete.
    answers: Vec<Instant>,
    requests_max: u64,
    requests: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct HttpClient {
    /// Segments of its answer that the server may not send yet.
    held_back: u32,
    /// Segments that have not left.
    missing: u32,
    last: Instant,
}

#[derive(Clone, Copy, Debug)]
enum HttpEvent {
    /// The server accepts a connection.
    Accept(usize),
    /// The server sends a segment.
    Segment(usize),
}

impl HttpClients {
    /// The longest file, in bytes: all segments of its answer may be scheduled at once.
    pub const FILE_MAX: u32 = SEGMENTS_MAX * SEGMENT_DATA - HTTP_HEADER;

    /// Makes clients that fetch a file of `bytes` bytes, at most [`Self::FILE_MAX`]; `steps` says
    /// how many are active from which instant on. After `requests_max` requests in all they stop.
    #[must_use]
    pub fn new(
        bytes: u32,
        round_trip: Nanos,
        steps: Vec<(Instant, u32)>,
        requests_max: u64,
    ) -> Self {
        let most = steps.iter().map(|(_, count)| *count).max().unwrap_or(0) as usize;
        let mut made = Self {
            segments: (bytes.min(Self::FILE_MAX) + HTTP_HEADER).div_ceil(SEGMENT_DATA).max(1),
            round_trip,
            steps,
            clients: vec![HttpClient::default(); most],
            events: EventQueue::new(most * SEGMENTS_MAX as usize),
            offered: None,
            answers: Vec::new(),
            requests_max,
            requests: 0,
        };
        for client in 0..most {
            made.connect(client, Instant::ZERO);
        }
        made
    }

    /// When answers were complete.
    #[must_use]
    pub fn answers(&self) -> &[Instant] {
        &self.answers
    }

    /// Has a client connect at an instant, or as soon as it is active again.
    fn connect(&mut self, client: usize, at: Instant) {
        let works = |count: u32| client < count as usize;
        let now = self.steps.iter().rev().find(|(from, _)| *from <= at);
        let starts = match now {
            Some((_, count)) if works(*count) => Some(at),
            _ => self.steps.iter().find(|(from, count)| *from > at && works(*count)).map(|s| s.0),
        };
        if let Some(starts) = starts {
            self.schedule(starts, HttpEvent::Accept(client));
        }
    }

    fn schedule(&mut self, at: Instant, event: HttpEvent) {
        let scheduled = self.events.push(at, event);
        debug_assert!(scheduled.is_ok(), "there is room for each segment of each client");
    }

    fn segment_left(&mut self, client: usize, leaves: Instant) {
        let state = &mut self.clients[client];
        state.missing -= 1;
        state.last = state.last.max(leaves);
        let more = state.held_back.min(2);
        state.held_back -= more;
        let (missing, last) = (state.missing, state.last);
        for _ in 0..more {
            self.schedule(leaves + self.round_trip, HttpEvent::Segment(client));
        }
        if missing == 0 {
            self.answers.push(last);
            self.connect(client, last + self.round_trip);
        }
    }
}

impl ShapedSource for HttpClients {
    fn due(&self) -> Instant {
        self.events.next().unwrap_or(Instant::FAR_FUTURE)
    }

    fn offer(&mut self, now: Instant) -> Option<u32> {
        let (_, event) = self.events.pop_due(now)?;
        if matches!(event, HttpEvent::Accept(_)) {
            if self.requests == self.requests_max {
                return None;
            }
            self.requests += 1;
        }
        self.offered = Some(event);
        Some(match event {
            HttpEvent::Accept(_) => CONTROL_BYTES,
            HttpEvent::Segment(_) => SEGMENT_DATA + HEADERS,
        })
    }

    fn outcome(&mut self, now: Instant, leaves: Option<Instant>) {
        let Some(event) = self.offered.take() else { return };
        match (event, leaves) {
            (event, None) => {
                self.requests -= u64::from(matches!(event, HttpEvent::Accept(_)));
                self.schedule(now + TIME_OUT, event);
            }
            (HttpEvent::Accept(client), Some(leaves)) => {
                let first = self.segments.min(FIRST_WINDOW);
                self.clients[client] = HttpClient {
                    held_back: self.segments - first,
                    missing: self.segments,
                    last: leaves,
                };
                for _ in 0..first {
                    self.schedule(leaves + self.round_trip, HttpEvent::Segment(client));
                }
            }
            (HttpEvent::Segment(client), Some(leaves)) => self.segment_left(client, leaves),
        }
    }
}

/// Longest packet of a [`VideoSource`].
pub const VIDEO_PACKET: u64 = 1400;
/// Frames a second.
const FPS: u64 = 25;
/// Frames of a group, of which the first is coded without the others.
const GROUP: u64 = 12;
/// Length of the first frame of a group, in lengths of the others.
const INTRA: u64 = 3;
/// Bytes of an answer before the file.
const HTTP_HEADER: u32 = 250;
/// Data of a segment, with time stamps, and its headers from Ethernet on.
const SEGMENT_DATA: u32 = 1448;
const HEADERS: u32 = 66;
/// A packet that opens a connection.
const CONTROL_BYTES: u32 = 74;
/// RFC 6928.
const FIRST_WINDOW: u32 = 10;
/// The least retransmission time-out of Linux.
const TIME_OUT: Nanos = Nanos::from_millis(200);
/// Segments that a client may have scheduled at once.
const SEGMENTS_MAX: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shaper::{PacedShaper, run_shaped};

    #[test]
    fn video_has_its_rate_and_its_long_frames() {
        let mut source = VideoSource::new(BitRate::from_mbps(2), Instant::ZERO);
        let mut frames: Vec<u64> = Vec::new();
        while source.frame < 24 {
            let (frame, bytes) = (source.frame, source.offer(source.due()).unwrap());
            assert!(bytes > 0);
            match frames.get_mut(usize::try_from(frame).unwrap()) {
                Some(sum) => *sum += u64::from(bytes),
                None => frames.push(bytes.into()),
            }
        }
        // 24 frames are 0.96 s of 250 000 bytes.
        assert_eq!(frames.iter().sum::<u64>(), 240_000);
        assert!(frames[0].abs_diff(3 * frames[1]) <= 3 && frames[12].abs_diff(frames[0]) <= 1);
    }

    /// Six segments of 1514 bytes and a packet of 74 take 36.632 ms at 2 Mb/s; the last leaves when
    /// the transmission of the others has ended.
    #[test]
    fn a_client_asks_again_when_it_has_its_answer() {
        let round_trip = Nanos::from_millis(1);
        let steps = vec![(Instant::ZERO, 1)];
        let mut clients = HttpClients::new(8192, round_trip, steps, 3);
        let mut paced = PacedShaper::new(BitRate::from_mbps(2), Nanos::from_secs(1));
        let packets = run_shaped(&mut paced, &mut clients, Instant::from_nanos(1_000_000_000));
        assert_eq!((packets.len(), clients.answers().len()), (21, 3));
        assert_eq!(clients.answers()[0], Instant::from_nanos(1_000_000 + 5 * 6_056_000));
    }

    #[test]
    fn clients_come_and_go() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let steps = vec![(at(0), 1), (at(1_000), 4), (at(2_000), 2)];
        let mut clients = HttpClients::new(1000, Nanos::from_millis(10), steps, u64::MAX);
        let mut paced = PacedShaper::new(BitRate::from_mbps(1000), Nanos::from_secs(1));
        run_shaped(&mut paced, &mut clients, at(3_000));
        let of = |from, to| clients.answers().iter().filter(|t| (from..to).contains(*t)).count();
        let each = [of(at(0), at(1_000)), of(at(1_020), at(2_000)), of(at(2_020), at(3_000))];
        // Each client gets an answer every 20 ms.
        assert!(each[0].abs_diff(50) <= 1 && each[1].abs_diff(196) <= 8, "{each:?}");
        assert!(each[2].abs_diff(98) <= 4, "{each:?}");
    }
}
