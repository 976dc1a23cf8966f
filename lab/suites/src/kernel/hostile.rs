// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that a tenant may not send, one kind after the other: each is counted under the reason of
//! the switch. Then frames to a tenant of another slice, which the bridge would deliver.

use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_policy::MacAddr;
use weir_switch::Reason;

use super::setting::policy;
use crate::isolation::{all_counted, from_tenant};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let star = StarTopology::new("kernel-hostile", 2, BitRate::from_mbps(100));
    let mut policy = policy(&star);
    policy.vifs[1].macs = vec![MacAddr(StarTopology::mac(1).0)];
    let mut rig = Testbed::up(&star)?;
    rig.put(&policy.into())?;
    let namespace = star.namespace("t1");
    let node = rig.running()?;
    let dropped = |vif: &str, send: bool, reason: &str| -> Result<u64> {
        let status = node.status()?;
        let vif = status.vif(vif).map(|vif| if send { &vif.send } else { &vif.receive });
        let amount = vif.and_then(|way| way.dropped.get(reason));
        Ok(amount.map_or(0, |amount| amount.packets))
    };
    let kinds = from_tenant(1).into_iter().filter(|(_, reason, _)| HELD.contains(reason));
    for (name, reason, frame) in kinds {
        let text = format!("sent, not counted as {reason}");
        let read = || dropped("t1", true, reason.name());
        all_counted(rec, &namespace, [name, &text], &vec![frame; TIMES], read)?;
    }
    let foreign = || dropped("t0", false, "foreign_slice");
    let before = foreign()?;
    let (to, from) = (StarTopology::mac(0).0, StarTopology::mac(1).0);
    let frame = [&to[..], &from, &[0x88, 0xb5], &[0; 46]].concat();
    let sent = weir_traffic::send_raw(&namespace, "eth0", &vec![frame; TIMES])? as u64;
    let wanted = before + sent;
    clock::wait_for(PATIENCE, POLL, || Ok(Some(foreign()?).filter(|now| *now >= wanted)))?;
    let counted = foreign()? - before;
    rig.down()?;
    rec.at_least("foreign/sent", "frames to another slice", sent, TIMES as u64)?;
    rec.at_least("foreign/dropped", "of them dropped as foreign_slice", counted, sent)
}

/// The reasons that programs hold; the kernel drops what is cut or too long by itself.
const HELD: [Reason; 5] = [
    Reason::BadSource,
    Reason::ReservedGroup,
    Reason::UnexpectedTag,
    Reason::NestedTag,
    Reason::SpoofedMac,
];
/// Frames of each kind.
const TIMES: usize = 50;
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
