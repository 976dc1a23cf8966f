// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells the service manager the state of the node, by the sd_notify protocol of systemd: datagrams
//! to the socket that `$NOTIFY_SOCKET` names. Without that variable nothing is sent.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The connection to the service manager, if there is one.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The time between two signs of life: half of the watchdog's timeout.
    interval: Option<Duration>,
    next: Instant,
}

impl ServiceManager {
    /// Connects as the environment says.
    ///
    /// # Errors
    /// The environment names no possible socket, or a time that is no number.
    pub(crate) fn from_env() -> io::Result<Self> {
        Self::new(std::env::var_os("NOTIFY_SOCKET"), std::env::var_os("WATCHDOG_USEC"))
    }

    fn new(socket: Option<OsString>, watchdog_us: Option<OsString>) -> io::Result<Self> {
        let address = |name: OsString| match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
            _ => SocketAddr::from_pathname(name),
        };
        let socket = match socket {
            Some(name) => Some((UnixDatagram::unbound()?, address(name)?)),
            None => None,
        };
        let micros = |text: OsString| text.to_str().and_then(|text| text.parse::<u64>().ok());
        let interval = match watchdog_us {
            Some(text) => {
                let wrong = || io::Error::other("WATCHDOG_USEC is no number of microseconds");
                Some(Duration::from_micros(micros(text).ok_or_else(wrong)? / 2))
            }
            None => None,
        };
        Ok(Self { socket, interval, next: Instant::now() })
    }

    /// Reports that the node forwards.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// Reports that the node ends.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Returns true if a sign of life is due. The next one is then due an interval later.
    pub(crate) fn is_due(&mut self) -> bool {
        let Some(interval) = self.interval else { return false };
        let now = Instant::now();
        let due = now >= self.next;
        if due {
            self.next = now + interval;
        }
        due
    }

    /// Reports a sign of life.
    pub(crate) fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, state: &str) {
        if let Some((socket, address)) = &self.socket {
            // The service manager may have gone, which does not concern the node.
            let _gone = socket.send_to_addr(state.as_bytes(), address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_hears_what_it_asked_for() {
        let name = format!("weir-supervisor-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let mut told =
            ServiceManager::new(Some(format!("@{name}").into()), Some("200000000".into())).unwrap();
        told.ready();
        assert!(told.is_due() && !told.is_due(), "once in 100 s");
        told.alive();
        told.stopping();
        let hear = || {
            let mut text = [0; 32];
            let length = manager.recv(&mut text).unwrap();
            String::from_utf8_lossy(&text[..length]).into_owned()
        };
        assert_eq!([hear(), hear(), hear()], ["READY=1", "WATCHDOG=1", "STOPPING=1"]);
        let mut often = ServiceManager::new(None, Some("2000".into())).unwrap();
        assert!(often.is_due());
        std::thread::sleep(Duration::from_millis(2));
        assert!(often.is_due(), "again after a millisecond");
    }

    #[test]
    fn without_one_nobody_is_told_and_nonsense_is_refused() {
        let mut none = ServiceManager::new(None, None).unwrap();
        none.ready();
        assert!(!none.is_due());
        assert!(ServiceManager::new(None, Some("soon".into())).is_err());
    }
}
