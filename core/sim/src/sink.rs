// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts of what arrived from a source: by time, by delay, and in which order.

use weir_result::{Cells, Delays, Histogram, Order, Sequence};

use crate::Departure;

/// Counts the departures of one source, in the same way as the sink on the wire.
#[derive(Clone, Debug)]
pub struct StreamSink {
    cells: Cells,
    delays: Histogram,
    sequence: Sequence,
    packets: u64,
}

impl StreamSink {
    /// Makes a sink that counts in cells of `cell_ns` from instant 0 on.
    #[must_use]
    pub fn new(cell_ns: u64) -> Self {
        let (delays, sequence) = (Histogram::new(), Sequence::default());
        Self { cells: Cells::new(0, cell_ns), delays, sequence, packets: 0 }
    }

    /// Counts a departure.
    pub fn add(&mut self, departure: &Departure) {
        let delay = departure.at.saturating_since(departure.offered);
        self.cells.add(departure.at.as_nanos(), 1, departure.bytes);
        self.delays.add(Some(delay.as_nanos()));
        self.sequence.add(departure.number);
        self.packets += 1;
    }

    /// Returns packets and bytes by time.
    #[must_use]
    pub const fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Returns how long the packets were on their way.
    #[must_use]
    pub fn delays(&self) -> Delays {
        self.delays.delays()
    }

    /// Returns what the numbers of the packets say.
    #[must_use]
    pub const fn order(&self) -> Order {
        self.sequence.order()
    }

    /// Returns how many packets arrived.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }
}

/// Returns the bytes of a source in each of `seconds` whole seconds from second `from` on.
#[must_use]
pub fn bytes_each_second(
    departures: &[Departure],
    source: usize,
    from: u64,
    seconds: usize,
) -> Vec<u64> {
    let mut bytes = vec![0; seconds];
    for departure in departures.iter().filter(|departure| departure.source == source) {
        let second = (departure.at.as_nanos() / 1_000_000_000).checked_sub(from);
        let place = second.and_then(|second| usize::try_from(second).ok());
        if let Some(sum) = place.and_then(|place| bytes.get_mut(place)) {
            *sum += departure.bytes;
        }
    }
    bytes
}

/// Says whether the frames of each source left in the order in which they were offered.
#[must_use]
pub fn in_order(departures: &[Departure]) -> bool {
    let mut last = std::collections::BTreeMap::new();
    departures.iter().all(|departure| {
        let before = last.insert(departure.source, departure.number);
        before.is_none_or(|before| before < departure.number)
    })
}

/// Returns the most bytes that left in any window of `window` nanoseconds. The departures are in
/// order of time.
#[must_use]
pub fn most_in_window(departures: &[Departure], window: u64) -> u64 {
    let (mut oldest, mut sum, mut most) = (departures.iter().peekable(), 0, 0);
    for departure in departures {
        sum += departure.bytes;
        let now = departure.at.as_nanos();
        while let Some(gone) = oldest.next_if(|first| first.at.as_nanos() + window <= now) {
            sum -= gone.bytes;
        }
        most = most.max(sum);
    }
    most
}
