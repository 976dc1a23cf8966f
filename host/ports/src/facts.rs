// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Caches device properties that are slow to read.
//!
//! The kernel reads them under the RTNL lock, its one lock over all devices. Another process may
//! hold it for 100 ms while it creates or deletes a device. The worker must not wait so long, so it
//! reads only the cache; another thread refreshes it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::link;

/// The cached properties of a device.
#[derive(Debug)]
pub struct DeviceProperties {
    ifindex: u32,
    dropped_before: u64,
    dropped: AtomicU64,
    redirects: AtomicBool,
}

/// The devices of a node whose properties are refreshed from time to time. Any thread may do it.
#[derive(Debug, Default)]
pub struct DevicePropertyCache {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    devices: Vec<Weak<DeviceProperties>>,
    refreshed: Option<Instant>,
}

impl DeviceProperties {
    /// Reads the properties of a device of this network namespace.
    pub(crate) fn of(ifindex: u32) -> Arc<Self> {
        let dropped_before = link::dropped_on_transmit(ifindex).unwrap_or(0);
        Arc::new(Self {
            ifindex,
            dropped_before,
            dropped: AtomicU64::new(dropped_before),
            redirects: AtomicBool::new(link::takes_redirects(ifindex)),
        })
    }

    /// Reads the properties from the kernel. Returns true if the device has begun or ceased to take
    /// redirected frames. The count of drops stays as it was if the device no longer exists.
    pub fn refresh(&self) -> bool {
        if let Ok(dropped) = link::dropped_on_transmit(self.ifindex) {
            self.dropped.store(dropped, Ordering::Relaxed);
        }
        let takes = link::takes_redirects(self.ifindex);
        self.redirects.swap(takes, Ordering::Relaxed) != takes
    }

    /// Returns the frames that the device dropped on transmission since it was opened, as of the
    /// last refresh.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed).saturating_sub(self.dropped_before)
    }

    /// Returns whether it took redirected frames at the last refresh.
    #[must_use]
    pub fn takes_redirects(&self) -> bool {
        self.redirects.load(Ordering::Relaxed)
    }
}

impl DevicePropertyCache {
    /// Adds a device. Its properties are refreshed as long as its port is open.
    pub fn add(&self, properties: &Arc<DeviceProperties>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.devices.retain(|other| other.strong_count() > 0);
        state.devices.push(Arc::downgrade(properties));
    }

    /// Refreshes the properties of every device, unless that was done recently: within `EACH` times
    /// the number of devices, or within `LEAST`. Returns true if a device has begun or ceased to
    /// take redirected frames.
    pub fn refresh(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let count = u32::try_from(state.devices.len()).unwrap_or(u32::MAX);
        let age = EACH.saturating_mul(count).max(LEAST);
        if state.refreshed.is_some_and(|refreshed| refreshed.elapsed() < age) {
            return false;
        }
        state.refreshed = Some(Instant::now());
        let devices: Vec<Arc<DeviceProperties>> =
            state.devices.iter().filter_map(Weak::upgrade).collect();
        // Another thread may add a device while the kernel answers.
        drop(state);
        devices.iter().fold(false, |changed, properties| properties.refresh() | changed)
    }
}

/// At most some 200 devices are read a second, so that the RTNL lock stays free for others.
const EACH: Duration = Duration::from_millis(5);

/// The shortest time between two refreshes.
const LEAST: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_refreshed_while_its_port_is_open() {
        let cache = DevicePropertyCache::default();
        let properties = DeviceProperties::of(link::ifindex("lo").unwrap());
        cache.add(&properties);
        assert!(!cache.refresh(), "nothing has changed");
        assert_eq!(properties.dropped(), 0);
        assert!(!properties.takes_redirects(), "the loopback device takes none");
        drop(properties);
        cache.add(&DeviceProperties::of(1));
        assert_eq!(cache.state.lock().unwrap().devices.len(), 1, "the first is forgotten");
        let before = cache.state.lock().unwrap().refreshed;
        cache.refresh();
        assert_eq!(cache.state.lock().unwrap().refreshed, before, "too soon");
    }
}
