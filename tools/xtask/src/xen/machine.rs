// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine that QEMU emulates, from its start to the moment at which it switches itself off.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::packages::named;
use crate::command::show;

/// The machine to boot.
pub(super) struct LabMachine<'a> {
    /// Xen, as an ELF file.
    pub(super) xen: &'a Path,
    /// Its scheduler.
    pub(super) scheduler: &'a str,
    /// The kernel of domain 0.
    pub(super) kernel: &'a Path,
    /// Words of the kernel's command line besides its console.
    pub(super) words: &'a str,
    /// Its initramfs.
    pub(super) root: &'a Path,
    /// A disk on which it leaves its results.
    pub(super) disk: &'a Path,
}

impl LabMachine<'_> {
    /// Runs it until it switches itself off. Its output goes into `log`; the part of a line after
    /// [`MARK`] is shown.
    ///
    /// # Errors
    /// QEMU could not be started or failed; it ran for longer than [`LIMIT`], and was ended.
    pub(super) fn run(&self, log: &Path) -> Result<(), String> {
        let mut command = self.command();
        show(&command);
        let child = command.spawn().map_err(|error| format!("{QEMU}: {error}"))?;
        let mut child = Ending(child);
        let pipe = child.0.stdout.take().ok_or("QEMU has no standard output")?;
        let mut file = File::create(log).map_err(|error| named(log, &error))?;
        let (lines, next) = mpsc::channel();
        // The thread ends when QEMU ends, which alone holds the other end of the pipe.
        thread::spawn(move || {
            let mut reader = BufReader::new(pipe);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let whole = std::mem::take(&mut line);
                if lines.send(whole).is_err() {
                    break;
                }
            }
        });
        let until = Instant::now() + LIMIT;
        loop {
            match next.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    file.write_all(&line).map_err(|error| named(log, &error))?;
                    let text = String::from_utf8_lossy(&line);
                    if let Some((_, said)) = text.split_once(MARK) {
                        eprintln!("  {}: {}", self.scheduler, said.trim());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let (log, limit) = (log.display(), LIMIT.as_secs());
                    return Err(format!("not at its end after {limit} s; {log} has what it said"));
                }
            }
        }
        let status = child.0.wait().map_err(|error| format!("{QEMU}: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("{QEMU}: {status}")) }
    }

    fn command(&self) -> Command {
        let scheduler = self.scheduler;
        let xen = format!(
            "console=com1 com1=115200,8n1 dom0_mem={DOM0_MIB}M,max:{DOM0_MIB}M dom0_max_vcpus=1 \
             dom0_vcpus_pin noreboot=no sched={scheduler}"
        );
        let [kernel, root] = [self.kernel, self.root].map(Path::display);
        let modules = format!("{kernel} console=hvc0 quiet {},{root}", self.words);
        let disk = format!("file={},format=raw,if=virtio", self.disk.display());
        // QEMU is killed when this process ends, however it ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", QEMU]);
        // Time is counted in instructions, so that other load on this machine makes the run longer,
        // but changes nothing inside.
        command.args(["-accel", "tcg,thread=single", "-icount", INSTRUCTIONS]);
        // Without acceleration, Xen or domain 0 fails on features of newer processors.
        command.args(["-cpu", "qemu64", "-smp", "2"]);
        command.args(["-m", MEMORY, "-nodefaults", "-display", "none", "-no-reboot"]);
        command.args(["-serial", "stdio", "-drive", &disk]);
        command.arg("-kernel").arg(self.xen).args(["-append", &xen, "-initrd", &modules]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }
}

/// A child that does not outlive this value.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // If this fails, it has ended by itself.
        let _killed = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// The emulator.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// Marks a line that is to be shown while the machine runs.
const MARK: &str = "XEN-LAB ";

/// The longest run: several times the length of a run on a busy machine.
const LIMIT: Duration = Duration::from_secs(1200);

/// Speed of each processor: an instruction in 4 ns, 250 million a second. While both sleep, time
/// jumps ahead.
const INSTRUCTIONS: &str = "shift=2,sleep=off";

const MEMORY: &str = "896";
const DOM0_MIB: u32 = 560;
