// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices whose stand-in is attached after they were opened.
//!
//! The kernel waits for all its processors after each program at the ingress hook (TCX), some
//! 20 ms. A node with hundreds of devices is not to wait that long before it answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::device_entry::DeviceEntry;

/// The devices that wait for their stand-in, in the order in which they were opened.
#[derive(Debug, Default)]
pub(super) struct WaitingDevices {
    waiting: VecDeque<WaitingDevice>,
    /// The device whose stand-in is being attached; `None` if it was released in the meantime.
    current: Option<u32>,
}

#[derive(Debug)]
pub(super) struct WaitingDevice {
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) entry: DeviceEntry,
    /// Becomes true with the stand-in.
    pub(super) passes: Arc<AtomicBool>,
}

impl WaitingDevices {
    pub(super) fn add(&mut self, device: WaitingDevice) {
        self.waiting.push_back(device);
    }

    /// Removes a device that is released, even while its stand-in is being attached.
    pub(super) fn forget(&mut self, ifindex: u32) {
        self.waiting.retain(|waiting| waiting.ifindex != ifindex);
        self.current = self.current.filter(|current| *current != ifindex);
    }

    /// Takes the next device. Its stand-in is being attached until [`Self::end`].
    pub(super) fn begin(&mut self) -> Option<WaitingDevice> {
        let device = self.waiting.pop_front();
        self.current = device.as_ref().map(|device| device.ifindex);
        device
    }

    /// Notes that the attaching ended. Returns false if the device was released in the meantime.
    pub(super) fn end(&mut self, ifindex: u32) -> bool {
        self.current.take() == Some(ifindex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::device_entry::DeviceRole;
    use crate::xdp::gate::GateId;

    #[test]
    fn a_device_that_is_let_go_gets_none_even_midway() {
        let mut devices = WaitingDevices::default();
        for ifindex in [7, 8, 9] {
            let role = DeviceRole::Vif(GateId(0));
            let (socket_base, queues, index, frame_max) = (0, 1, 0, 2048);
            let entry = DeviceEntry { role, socket_base, queues, index, frame_max, passes: false };
            let (name, passes) = (ifindex.to_string(), Arc::default());
            devices.add(WaitingDevice { name, ifindex, entry, passes });
        }
        assert_eq!(devices.begin().unwrap().ifindex, 7);
        assert!(devices.end(7));
        devices.forget(8);
        assert_eq!(devices.begin().unwrap().ifindex, 9);
        devices.forget(9);
        assert!(!devices.end(9), "let go while it was attached");
        assert!(devices.begin().is_none());
    }
}
