// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Common tools of today, put in the middle of the star in Weir's place.

mod htb;
mod limiter;
mod napi;
mod ovs;
mod spared;

pub(crate) use htb::Htb;
pub(crate) use limiter::{Limiter, PeerLimit};
pub(crate) use napi::receive_on_worker_cpu;
pub(crate) use ovs::OpenVSwitch;
pub(crate) use spared::spare_worker_cpu;

use weir_experiment::UPLINK;
use weir_experiment::prelude::*;
use weir_platform::run::{Command, Host, Platform};

/// A kernel bridge over all links of the star. Gone with [`StarBridge::down`], or with the lab.
#[derive(Debug)]
pub(crate) struct StarBridge {
    namespace: String,
}

impl StarBridge {
    /// Puts it in the middle, which is empty. The uplink has no queueing discipline, which is the
    /// least that a bridge can cost.
    pub(crate) fn up(rig: &mut Testbed, star: &StarTopology) -> Result<Self> {
        rig.put(&Forwarder::Bridge)?;
        let bridge = Self { namespace: star.namespace("sw") };
        bridge.discipline("noqueue")?;
        Ok(bridge)
    }

    /// Takes it away.
    pub(crate) fn down(self) -> Result {
        self.discipline("pfifo limit 1000")?;
        self.run(Command::line("ip link del br0"))
    }

    fn discipline(&self, name: &str) -> Result {
        self.run(Command::line(&format!("tc qdisc replace dev {UPLINK} root {name}")))
    }

    fn run(&self, command: Command) -> Result {
        Host::default().run(&command.in_namespace(&self.namespace))?;
        Ok(())
    }
}
