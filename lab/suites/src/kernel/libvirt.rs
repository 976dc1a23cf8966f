// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest that libvirt starts, in QEMU without acceleration, on a bridge that the node adopted. It
//! has no operating system: its network card's boot program asks for an address, and sends nothing
//! else. A rule takes its device, with the `noqueue` that libvirt puts there; the guest's received
//! traffic is limited, and nothing is left of it.
//!
//! libvirt's daemon runs for the row alone, in namespaces of mounts and processes of its own, with
//! an empty state. The kernel's counters of the device are the measure.

use std::fs;
use std::path::Path;

use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::HostError;
use weir_platform::run::Command;
use weir_traffic::XdpStream;

use super::guests::{by_rule, host, wait_for_bridge, wait_for_vifs};
use super::host_lines::differences;

/// Shows the part of the row, or says what this machine lacks for it.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let driver = format!("/usr/lib/{}-linux-gnu/{DRIVER}", std::env::consts::ARCH);
    let needed = PROGRAMS.into_iter().chain([driver.as_str()]);
    if let Some(path) = needed.into_iter().find(|path| !Path::new(path).exists()) {
        rec.say(&format!(
            "SKIPPED the guest of libvirt: no {path} (Debian: libvirt-daemon-driver-qemu, \
             libvirt-clients, qemu-system-x86)"
        ));
        return Ok(());
    }
    rec.within("libvirt/", record)
}

fn record(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let star = StarTopology::new("kernel-libvirt", 1, LINK);
    let mut rig = Testbed::up(&star)?;
    rig.put(&by_rule(&star)?.into())?;
    wait_for_bridge(&rig)?;
    let before = host(&rig)?;
    let (script, stop) = (rig.file("libvirt.sh"), rig.file("stop"));
    let mac = StarTopology::mac(GUEST).to_string();
    write(&script, SCRIPT)?;
    let line = "timeout 240 unshare -m -p -f --kill-child --mount-proc sh -e \"$@\" >\"$0\" 2>&1 &";
    let said = rig.file("libvirt.said");
    let words = [&said, &script, &stop].map(|path| path.display().to_string());
    let words = ["-c", line, &words[0], &words[1], &words[2], &mac];
    rig.ask("sw", Command::new("sh", words))?;
    let failed = |error| {
        let said = fs::read_to_string(&said).unwrap_or_default();
        ExperimentError::Node(format!("{error}; libvirt: {}", said.trim()))
    };
    wait_for_vifs(&rig, &[DEVICE], PATIENCE).map_err(failed)?;
    let asked = sent(&rig)?;
    let (tree, limited) = (tree(&rig)?, measure(rec, &rig)?);
    let foreign = rig.running()?.said().matches("vnet0 has a").count();
    write(&stop, "")?;
    wait_for_vifs(&rig, &[], PATIENCE)?;
    let left = differences(&before, &host(&rig)?);
    rig.stop_node()?;
    rig.down()?;
    rec.at_least("sent", "frames that the guest sent, and that the wire's end saw", asked, 2)?;
    rec.at_least("tree", "trees at its device", tree, 1)?;
    rec.none("foreign", "disciplines of libvirt's that were taken for a limit", foreign as u64)?;
    rec.keep("receives", Series::unordered("bit/s", vec![limited]))?;
    let (least, most) = (0.95 * RECEIVE_BPS, 1.02 * RECEIVE_BPS);
    let text = "bits a second that came to it";
    rec.claim("least", text, Rule::Min, Bound::at_least(least), &["receives"])?;
    rec.claim("most", text, Rule::Max, Bound::at_most(most), &["receives"])?;
    rec.none("left", "lines of disciplines and devices left when it was gone", left)
}

fn write(path: &Path, text: &str) -> Result {
    fs::write(path, text).map_err(|error| HostError::io("write", path, error))?;
    Ok(())
}

/// Waits until the guest has asked for an address twice. Returns the frames that the wire's end
/// received.
fn sent(rig: &Testbed) -> Result<u64> {
    let of_vif = || -> Result<u64> {
        let status = rig.running()?.status()?;
        Ok(status.vif(DEVICE).map_or(0, |vif| vif.send.sent.packets))
    };
    let done = clock::wait_for(PATIENCE, POLL, || Ok((of_vif()? >= 2).then_some(())))?;
    done.ok_or_else(|| ExperimentError::Node("the guest sends nothing".to_owned()))?;
    let of_vif = of_vif()?;
    let links = rig.link_counters("wire")?;
    let seen = links.iter().find(|link| link.name == "eth0").map_or(0, |link| link.received[0]);
    Ok(seen.min(of_vif))
}

fn tree(rig: &Testbed) -> Result<u64> {
    let said = rig.ask("sw", Command::line(&format!("tc qdisc show dev {DEVICE} root")))?;
    Ok(u64::from(said.contains(" 7e10: ")))
}

/// Sends more from the wire to the guest than it may receive. Returns the bits a second that the
/// kernel gave its device.
fn measure(rec: &mut Recording<'_>, rig: &Testbed) -> Result<f64> {
    let star = rig.star();
    let seconds = if rec.quick { 6 } else { 12 };
    let towards = XdpStream {
        destination_mac: StarTopology::mac(GUEST),
        ..star.stream_towards(0, 0, 1000, Some(Rate::Bps(LOAD_BPS)))
    };
    let run = TrafficRun {
        senders: vec![star.generator(vec![towards])],
        receivers: vec![star.sink()],
        ..TrafficRun::new(star, Forwarder::Bridge, seconds)
    };
    let at = || -> Result<(u64, u64)> {
        let links = rig.link_counters("sw")?;
        let found = links.into_iter().find(|link| link.name == DEVICE);
        let link = found.ok_or_else(|| ExperimentError::Node(format!("{DEVICE} is gone")))?;
        Ok((clock::monotonic_ns(), link.sent[1]))
    };
    let (_, [first, last]) = run.flow(rig, |_| {
        clock::sleep(SETTLE)?;
        let first = at()?;
        clock::sleep(Duration::from_secs(seconds as u64).saturating_sub(2 * SETTLE))?;
        Ok([first, at()?])
    })?;
    Ok(8e9 * float(last.1 - first.1) / float(last.0 - first.0))
}

/// Runs libvirt. The arguments are a file that ends it, and the guest's address. libvirt's daemon
/// needs a user that its Debian package creates only if the system's daemon is installed, too.
const SCRIPT: &str = r#"
stop=$1 mac=$2
work=$(dirname "$stop")
mount --make-rprivate /
mount --bind "$work" /mnt
mount -t tmpfs run /run
mkdir -p "$work"
mount --move /mnt "$work"
mount -t tmpfs lib /var/lib
cp /etc/passwd "$work/passwd"
cp /etc/group "$work/group"
cp -a /etc/libvirt "$work/etc"
grep -q ^libvirt-qemu: /etc/passwd ||
    echo 'libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin' >>"$work/passwd"
grep -q ^libvirt-qemu: /etc/group || echo 'libvirt-qemu:x:64055:' >>"$work/group"
echo 'auth_unix_rw = "none"' >"$work/etc/libvirtd.conf"
cat >"$work/etc/qemu.conf" <<END
security_driver = "none"
user = "root"
group = "root"
cgroup_controllers = [ ]
namespaces = [ ]
remember_owner = 0
stdio_handler = "file"
END
mount --bind "$work/passwd" /etc/passwd
mount --bind "$work/group" /etc/group
mount --bind "$work/etc" /etc/libvirt
mkdir -p /run/libvirt /run/lock /var/lib/libvirt
libvirtd &
for attempt in $(seq 100); do
    virsh -c qemu:///system version >/dev/null 2>&1 && break
    sleep 0.2
done
cat >"$work/guest.xml" <<END
<domain type='qemu'>
  <name>guest</name>
  <memory unit='MiB'>64</memory>
  <os><type arch='x86_64'>hvm</type><boot dev='network'/></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <interface type='bridge'>
      <source bridge='br0'/>
      <mac address='$mac'/>
      <model type='e1000'/>
    </interface>
  </devices>
</domain>
END
virsh -c qemu:///system create "$work/guest.xml"
while [ ! -e "$stop" ]; do sleep 0.2; done
virsh -c qemu:///system destroy guest
"#;

const PROGRAMS: [&str; 3] = ["/usr/sbin/libvirtd", "/usr/bin/virsh", "/usr/bin/qemu-system-x86_64"];
const DRIVER: &str = "libvirt/connection-driver/libvirt_driver_qemu.so";
/// The device that libvirt makes for its first guest.
const DEVICE: &str = "vnet0";
/// The guest has the address of this tenant, which the star does not have.
const GUEST: usize = 1;
const LINK: BitRate = BitRate::from_mbps(80);
const RECEIVE_BPS: f64 = 15e6;
const LOAD_BPS: u64 = 30_000_000;
const SETTLE: Duration = Duration::from_secs(1);
/// The longest wait for the guest, without acceleration on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(100);
