// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shares, shaper and queue of a vif by direction.

use crate::{Direction, Queue, Share, SmoothWindow, Vif};

impl Vif {
    /// Returns the share of one direction.
    #[must_use]
    pub const fn share(&self, direction: Direction) -> &Share {
        match direction {
            Direction::Send => &self.send,
            Direction::Receive => &self.receive,
        }
    }

    /// Returns the smooth window of one direction; `None`: `rate` is held by a token bucket.
    #[must_use]
    pub const fn shaper(&self, direction: Direction) -> Option<&SmoothWindow> {
        match direction {
            Direction::Send => self.send_shaper.as_ref(),
            Direction::Receive => self.receive_shaper.as_ref(),
        }
    }

    /// Returns the queue of one direction.
    #[must_use]
    pub const fn queue(&self, direction: Direction) -> &Queue {
        match direction {
            Direction::Send => &self.send_queue,
            Direction::Receive => &self.receive_queue,
        }
    }
}
