// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux HTB on the uplink: a class for each tenant, found by its source address.

use weir_experiment::UPLINK;
use weir_experiment::prelude::*;
use weir_platform::run::{Command, Host, Platform};

/// The setting of the classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Htb {
    /// The rate of the link, to which each class may borrow.
    pub(crate) link: BitRate,
    /// The rate that each class has for itself.
    pub(crate) class: BitRate,
    /// Bytes that a class may get ahead of its rate.
    pub(crate) burst: ByteCount,
    /// Packets that each class holds.
    pub(crate) packets: u32,
}

impl Htb {
    /// Puts it on the uplink.
    pub(crate) fn up(self, star: &StarTopology) -> Result {
        let command = Command::batch("tc", self.lines(star)).in_namespace(&star.namespace("sw"));
        Host::default().run(&command)?;
        Ok(())
    }

    /// Returns the lines of `tc`, as a person would type them. The filter hashes the fifth byte of
    /// the source address, so that a class is found in one step for any number of classes.
    fn lines(self, star: &StarTopology) -> Vec<String> {
        let Self { link, class, burst, packets } = self;
        let (link, class, burst) = (link.as_bps(), class.as_bps(), burst.get());
        let device = format!("dev {UPLINK}");
        let mut lines = vec![
            format!("qdisc replace {device} root handle 1: htb default ffff"),
            format!(
                "class add {device} parent 1: classid 1:1 htb rate {link}bit burst {burst} \
                 cburst {burst} quantum 1514"
            ),
            format!("filter add {device} parent 1: prio 1 handle 2: protocol all u32 divisor 256"),
            format!(
                "filter add {device} parent 1: prio 1 protocol all u32 ht 800: match u8 0 0 at 0 \
                 hashkey mask 0x00ff0000 at -4 link 2:"
            ),
        ];
        for index in 0..star.tenants.len() {
            let [.., high, low] = StarTopology::mac(index).0;
            let minor = index + 16;
            lines.push(format!(
                "class add {device} parent 1:1 classid 1:{minor:x} htb rate {class}bit \
                 ceil {link}bit burst {burst} cburst {burst} quantum 1514"
            ));
            lines.push(format!(
                "qdisc add {device} parent 1:{minor:x} handle {minor:x}: pfifo limit {packets}"
            ));
            lines.push(format!(
                "filter add {device} parent 1: prio 1 protocol all u32 ht 2:{low:x}: \
                 match u16 0x{high:02x}{low:02x} 0xffff at -4 flowid 1:{minor:x}"
            ));
        }
        lines
    }
}
