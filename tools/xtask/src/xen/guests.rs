// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network of the Xen lab: two guests with two interfaces each, which forward from the first
//! to the second; traffic comes from domain 0 and goes back to it.
//!
//! ```text
//!   domain 0: sender ──── 10.7.N.1 │ guest fcN │ 10.8.N.1 ──── domain 0: counted, dropped
//! ```

/// One guest.
#[derive(Clone, Copy)]
pub(super) struct LabGuest {
    /// Its number, from 1.
    number: u8,
    /// True if its devices on the side of domain 0 have names of their own, by `vifname`.
    named: bool,
}

/// Two guests, one for each way to name devices.
pub(super) const GUESTS: [LabGuest; 2] =
    [LabGuest { number: 1, named: false }, LabGuest { number: 2, named: true }];

impl LabGuest {
    pub(super) fn name(self) -> String {
        format!("fc{}", self.number)
    }

    /// Returns its configuration, as `xl create` takes it. All guests are on the second processor,
    /// so that only caps limit them, and not the load of domain 0.
    pub(super) fn config(self) -> String {
        let (name, number) = (self.name(), self.number);
        let vif = |index: u8| {
            let mac = self.mac(index);
            let given =
                if self.named { format!(",vifname={name}-eth{index}") } else { String::new() };
            format!("'mac={mac},script=vif-weir{given}'")
        };
        let (first, second) = (vif(0), vif(1));
        format!(
            "name=\"{name}\"\ntype=\"pv\"\nkernel=\"/boot/vmlinux\"\nramdisk=\"/boot/guest\"\n\
             memory={MEMORY_MIB}\nvcpus=1\ncpus=\"1\"\n\
             extra=\"console=hvc0 quiet guest={number}\"\nvif=[{first},{second}]\n"
        )
    }

    /// Returns the commands by which domain 0 configures the guest's network, a line for
    /// `ip -batch` each. The guest is number `domain` to Xen.
    pub(super) fn network(self, domain: u8) -> String {
        let (number, device, mac) = (self.number, self.device(domain), self.mac(0));
        format!(
            "address add 10.7.{number}.1/24 dev {device}\n\
             neighbour replace 10.7.{number}.2 lladdr {mac} dev {device}\n\
             route add 198.18.{number}.0/24 via 10.7.{number}.2\n"
        )
    }

    /// Returns the settings for the script of domain 0: the device behind which the guest waits for
    /// packets, its address, and the destination of packets that it forwards, where no host is.
    pub(super) fn settings(self, domain: u8) -> String {
        let (number, name, device) = (self.number, self.name(), self.device(domain));
        format!("device={device}\naddress=10.7.{number}.2\nload={name}=198.18.{number}.1:9\n")
    }

    /// Its first device on the side of domain 0.
    fn device(self, domain: u8) -> String {
        if self.named { format!("{}-eth0", self.name()) } else { format!("vif{domain}.0") }
    }

    fn mac(self, index: u8) -> String {
        format!("00:16:3e:00:{:02x}:{index:02x}", self.number)
    }
}

/// Returns routing rules that the guest checks one by one for each packet. They make forwarding so
/// expensive that the guest is the bottleneck, and not domain 0, which copies every packet twice.
pub(super) fn rules() -> String {
    let rule = |number: u32| {
        let (high, low) = (number / 256, number % 256);
        format!("rule add from 203.0.{high}.{low} lookup main priority {}\n", FIRST_RULE + number)
    };
    (0..RULES).map(rule).collect()
}

/// The memory of a guest, for an unpacked kernel of 66 MB and hardly anything else.
const MEMORY_MIB: u32 = 96;

/// With this number of rules a packet costs a guest 1.5 times as much as domain 0.
const RULES: u32 = 400;

/// The priority of the first rule: before the kernel's rules, which begin at 32766.
const FIRST_RULE: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_guest_has_devices_with_names_and_one_without() {
        let [first, second] = GUESTS;
        assert!(first.config().contains(
            "vif=['mac=00:16:3e:00:01:00,script=vif-weir','mac=00:16:3e:00:01:01,script=vif-weir']"
        ));
        assert!(second.config().contains("script=vif-weir,vifname=fc2-eth1'"));
        assert!(first.network(1).starts_with("address add 10.7.1.1/24 dev vif1.0\n"));
        assert!(second.network(2).starts_with("address add 10.7.2.1/24 dev fc2-eth0\n"));
        let settings = "device=fc2-eth0\naddress=10.7.2.2\nload=fc2=198.18.2.1:9\n";
        assert_eq!(second.settings(2), settings);
    }

    #[test]
    fn no_two_rules_are_the_same() {
        let rules = rules();
        let all: std::collections::BTreeSet<&str> = rules.lines().collect();
        assert_eq!(all.len(), rules.lines().count());
        assert!(rules.contains("rule add from 203.0.1.143 lookup main priority 1399\n"));
    }
}
