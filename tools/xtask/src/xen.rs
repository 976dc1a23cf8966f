// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Xen lab: the real hypervisor with a domain 0 and two guests that forward, from Debian's
//! packages, in QEMU without acceleration. Inside, the `weir` of this tree holds packet rates by
//! capping guests; the results are in `out/xen/SCHEDULER`. Under RTDS, with a hypervisor that is
//! built here, it gives guests real-time classes instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use crate::command::{output, root, run};
use crate::tools::{build, lab_path, tested_programs, weir_path};

mod cpio;
mod guests;
mod hypervisor;
mod image;
mod kernel;
mod machine;
mod packages;

use image::Sources;
use kernel::{Ending, Modules, filtered};
use machine::LabMachine;
use packages::{Packages, named};

/// The options of a call.
#[derive(Debug, PartialEq, Eq)]
struct XenLabOptions {
    schedulers: Vec<&'static str>,
    quick: bool,
    out: PathBuf,
    /// The folder of the programs, if they are not those of the release build.
    programs: Option<PathBuf>,
}

/// Runs `xen-lab [--scheduler NAME] [--quick] [--out FOLDER] [--programs FOLDER]`.
pub(crate) fn call(arguments: &[String]) -> Result<(), String> {
    let call = XenLabOptions::parse(arguments)?;
    if let Some(lacking) = missing() {
        return Err(lacking);
    }
    let files = BootFiles::make(call.programs.as_deref())?;
    if call.schedulers.contains(&RTDS) {
        hypervisor::with_rtds(&files.folder, &files.folder.join(packages::TREE))?;
    }
    boot_all(&files, &call)
}

/// Makes a quick run under Xen's default scheduler only, with the programs of the tests. The other
/// scheduler would take four minutes more and differs by two commands. If the run is not possible
/// here, returns the reason.
pub(crate) fn check() -> Result<Option<String>, String> {
    if let Some(lacking) = missing() {
        return Ok(Some(lacking));
    }
    if let Err(reason) = packages() {
        // Without a package server the run is not possible. If one answers, this is a failure.
        let reason = format!("Debian's packages of Xen: {reason}");
        return if update().is_ok() { Err(reason) } else { Ok(Some(reason)) };
    }
    let call =
        XenLabOptions { schedulers: vec![SCHEDULERS[0]], quick: true, ..XenLabOptions::default() };
    boot_all(&BootFiles::make(Some(&tested_programs()))?, &call).map(|()| None)
}

/// Returns what this machine lacks for the Xen lab, if anything.
fn missing() -> Option<String> {
    let programs = [
        (machine::QEMU, "qemu-system-x86"),
        ("apt-get", "apt"),
        ("dpkg-deb", "dpkg"),
        ("strip", "binutils"),
        ("xz", "xz-utils"),
    ];
    let there = |program| output(Command::new(program).arg("--version")).is_ok();
    let lacking = programs.into_iter().find(|(program, _)| !there(*program));
    lacking.map(|(program, package)| format!("no {program} on this machine ({package})"))
}

/// Boots a machine for each scheduler, all at once; a failure of one does not stop the others. Each
/// machine takes one thread, and its results do not depend on its speed.
fn boot_all(files: &BootFiles, call: &XenLabOptions) -> Result<(), String> {
    let boot = |scheduler: &str| {
        let folder = call.out.join(scheduler);
        let started = Instant::now();
        let outcome = files.boot(scheduler, call.quick, &folder);
        let seconds = started.elapsed().as_secs_f64();
        let verdict = if outcome.is_ok() { "holds" } else { "FAILED" };
        eprintln!("xen-lab: {scheduler} {verdict} ({seconds:.0} s), in {}", folder.display());
        outcome.map_err(|message| format!("{scheduler}: {message}"))
    };
    let outcomes: Vec<Result<(), String>> = thread::scope(|scope| {
        let start = |scheduler: &&'static str| {
            let scheduler = *scheduler;
            scope.spawn(move || boot(scheduler))
        };
        let booted: Vec<_> = call.schedulers.iter().map(start).collect();
        let panicked = |_| Err("a thread panicked".to_owned());
        booted.into_iter().map(|machine| machine.join().unwrap_or_else(panicked)).collect()
    });
    let failed: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

impl Default for XenLabOptions {
    fn default() -> Self {
        let (schedulers, out) = (SCHEDULERS.to_vec(), PathBuf::from(OUT));
        Self { schedulers, quick: false, out, programs: None }
    }
}

impl XenLabOptions {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut call = Self::default();
        let mut words = arguments.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match (word, word == "--quick") {
                (_, true) => call.quick = true,
                ("--scheduler", _) => {
                    let name = words.next().unwrap_or_default();
                    let all = [SCHEDULERS[0], SCHEDULERS[1], RTDS];
                    let known = all.into_iter().find(|known| *known == name);
                    let known = known
                        .ok_or_else(|| format!("no scheduler '{name}': {}", all.join(", ")))?;
                    call.schedulers = vec![known];
                }
                ("--out", _) => {
                    call.out = words.next().map(PathBuf::from).ok_or("--out: which folder?")?;
                }
                ("--programs", _) => {
                    let folder = words.next().map(PathBuf::from);
                    call.programs = Some(folder.ok_or("--programs: which folder?")?);
                }
                _ => return Err(format!("no option '{word}'; {USAGE}")),
            }
        }
        Ok(call)
    }
}

/// The files that a machine is booted from.
struct BootFiles {
    folder: PathBuf,
}

impl BootFiles {
    /// Makes all files, with the `weir` and `weir-lab` in this folder, or the release build.
    fn make(programs: Option<&Path>) -> Result<Self, String> {
        let tree = packages()?;
        let built = match programs {
            Some(folder) => [folder.join("weir"), folder.join("weir-lab")],
            None => build().map(|()| [weir_path(), lab_path()])?,
        };
        let files = Self { folder: folder() };
        let release = packages::kernel()?.trim_start_matches("linux-image-").to_owned();
        let unpacked = |name: &str, make: &dyn Fn() -> Result<Vec<u8>, String>| {
            let path = files.folder.join(name);
            let time = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
            if time(&path).is_none_or(|made| Some(made) < time(&files.folder.join("unpacked"))) {
                files.put(name, &make()?)?;
            }
            fs::read(&path).map_err(|error| named(&path, &error))
        };
        unpacked(XEN, &|| {
            let path = tree.join("boot/xen-4.17-amd64.gz");
            let packed = fs::read(&path).map_err(|error| named(&path, &error))?;
            filtered("gzip", &["-dc"], &packed, Ending::Well)
        })?;
        let vmlinuz = tree.join(format!("boot/vmlinuz-{release}"));
        let kernel = unpacked(KERNEL, &|| kernel::unpacked(&vmlinuz))?;
        let modules = Modules::below(&tree.join(format!("lib/modules/{release}")))?;
        let stripped = ["weir", "weir-lab"].map(|name| files.folder.join(name));
        for (from, to) in built.iter().zip(&stripped) {
            run(Command::new("strip").arg("-o").arg(to).arg(from))?;
        }
        let programs = &stripped;
        let sources = Sources { tree: &tree, modules: &modules, kernel: &kernel, programs };
        let guest = sources.guest()?;
        files.put(ROOT, &sources.domain_0(guest)?)?;
        Ok(files)
    }

    /// Boots the machine under a scheduler; afterwards the results are in `out`.
    fn boot(&self, scheduler: &str, quick: bool, out: &Path) -> Result<(), String> {
        if out.exists() {
            fs::remove_dir_all(out).map_err(|error| named(out, &error))?;
        }
        fs::create_dir_all(out).map_err(|error| named(out, &error))?;
        let xen = if scheduler == RTDS { hypervisor::BUILT } else { XEN };
        let [xen, kernel, root] = [xen, KERNEL, ROOT].map(|name| self.folder.join(name));
        let disk = self.folder.join(format!("disk-{scheduler}.img"));
        let empty = fs::File::create(&disk).and_then(|file| file.set_len(DISK_BYTES));
        empty.map_err(|error| named(&disk, &error))?;
        let words = match (scheduler, quick) {
            (RTDS, _) => "lab=classes",
            (_, true) => "weir=--quick",
            _ => "",
        };
        let [xen, kernel, root] = [&xen, &kernel, &root];
        let machine = LabMachine { xen, scheduler, kernel, words, root, disk: &disk };
        machine.run(&out.join("serial.log"))?;
        let mut unpack = Command::new("tar");
        unpack.args(["--strip-components=1", "-x", "-f"]).arg(&disk).arg("-C").arg(out);
        run(&mut unpack)?;
        judge(out, scheduler)
    }

    fn put(&self, name: &str, content: &[u8]) -> Result<(), String> {
        let path = self.folder.join(name);
        fs::write(&path, content).map_err(|error| named(&path, &error))
    }
}

/// The folder of everything that is built or fetched.
fn folder() -> PathBuf {
    root().join("target/xen")
}

/// Fetches and unpacks all packages.
fn packages() -> Result<PathBuf, String> {
    let folder = folder();
    fs::create_dir_all(&folder).map_err(|error| named(&folder, &error))?;
    let fetch = || {
        let kernel = packages::kernel()?;
        let mut names = PACKAGES.to_vec();
        names.push(&kernel);
        Packages::in_folder(&folder).unpacked(&names)
    };
    // The package lists may be missing or stale. Fetch them once, only if fetching packages fails.
    fetch().or_else(|first| {
        update().map_err(|_| first)?;
        fetch()
    })
}

/// Fetches the lists of packages; fails if any list is missing.
fn update() -> Result<(), String> {
    let strict = "APT::Update::Error-Mode=any";
    run(Command::new("apt-get").args(["-qq", "-o", strict, "update"]))
}

/// Refuses a run in which a step failed. `status` has a line for each step.
fn judge(out: &Path, scheduler: &str) -> Result<(), String> {
    let read = |name: &str| {
        let path = out.join(name);
        fs::read_to_string(&path).map_err(|error| named(&path, &error))
    };
    let status = read("status")?;
    let bad = unkept(&status);
    if !bad.is_empty() {
        return Err(format!("{}; see {}", bad.join(", "), out.display()));
    }
    let line = match scheduler {
        RTDS => "Xen runs RTDS".to_owned(),
        with_caps => format!("xl: {with_caps}"),
    };
    let found = read("doctor.txt")?;
    match found.lines().any(|said| said.ends_with(&line)) {
        true => Ok(()),
        false => Err(format!("`weir doctor` does not say '{line}'; see {}", out.display())),
    }
}

/// Returns the steps that did not run, or did not end with status 0.
fn unkept(status: &str) -> Vec<String> {
    let code = |name: &str| {
        let mut lines = status.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(said, _)| *said == name).map(|(_, code)| code)
    };
    let bad = DONE.iter().filter_map(|name| match code(name) {
        Some("0") => None,
        Some(other) => Some(format!("{name}: exit status {other}")),
        None => Some(format!("{name}: did not run")),
    });
    bad.collect()
}

/// The schedulers under which guests can be capped.
const SCHEDULERS: [&str; 2] = ["credit2", "credit"];

/// The scheduler under which guests can have real-time classes. Debian's Xen is built without it.
const RTDS: &str = "rtds";

const OUT: &str = "out/xen";
const XEN: &str = "xen.elf";
const KERNEL: &str = "vmlinux";
const ROOT: &str = "domain-0.img";
const DISK_BYTES: u64 = 32 << 20;

/// Packages of the machine, besides the kernel.
const PACKAGES: &[&str] = &[
    "busybox-static",
    "xen-hypervisor-4.17-amd64",
    "xen-utils-4.17",
    "xenstore-utils",
    "libxenmisc4.17",
    "libxenstore4",
    "libxentoollog1",
    "libxenforeignmemory1",
    "libxencall1",
    "libxenevtchn1",
    "libxengnttab1",
    "libxentoolcore1",
    "libxendevicemodel1",
    "libxenhypfs1",
    "libyajl2",
];

/// The steps that `status` must have.
const DONE: [&str; 9] = [
    "create-fc1",
    "create-fc2",
    "ping-fc1",
    "ping-fc2",
    "doctor",
    "switch",
    "weir",
    "xl-info",
    "xl-list",
];

const USAGE: &str =
    "usage: xen-lab [--scheduler credit|credit2|rtds] [--quick] [--out FOLDER] [--programs FOLDER]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_names_what_is_wrong_with_it() {
        let parse = |words: &[&str]| {
            XenLabOptions::parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let call = parse(&["--scheduler", "credit", "--quick", "--out", "x"]).unwrap();
        let (schedulers, out) = (vec!["credit"], PathBuf::from("x"));
        let expected = XenLabOptions { schedulers, quick: true, out, programs: None };
        assert_eq!(call, expected);
        assert_eq!(parse(&[]).unwrap().schedulers, SCHEDULERS);
        for (words, error) in [
            (&["--scheduler", "edf"][..], "no scheduler 'edf'"),
            (&["--out"], "--out: which folder?"),
            (&["x"], "no option 'x'"),
        ] {
            assert!(parse(words).unwrap_err().starts_with(error));
        }
    }

    #[test]
    fn what_failed_and_what_did_not_run_is_named() {
        let all: String = DONE.iter().map(|name| format!("{name} 0\n")).collect();
        assert_eq!(unkept(&all), [""; 0]);
        let bad = unkept(&all.replace("weir 0\n", "weir 3\n").replace("doctor 0\n", ""));
        assert_eq!(bad, ["doctor: did not run", "weir: exit status 3"]);
    }
}
