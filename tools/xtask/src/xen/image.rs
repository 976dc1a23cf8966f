// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initramfs of domain 0 and that of its guests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cpio::Root;
use super::guests::{GUESTS, rules};
use super::kernel::{Ending, Modules, filtered};
use super::packages::named;
use crate::command::output;

/// The sources of an image.
pub(super) struct Sources<'a> {
    /// The folder into which packages were unpacked.
    pub(super) tree: &'a Path,
    /// The modules of the kernel.
    pub(super) modules: &'a Modules,
    /// The kernel itself.
    pub(super) kernel: &'a [u8],
    /// The programs `weir` and `weir-lab`.
    pub(super) programs: &'a [PathBuf; 2],
}

impl Sources<'_> {
    /// Makes that of a guest: busybox, the network driver, and a script that makes it a router.
    pub(super) fn guest(&self) -> Result<Vec<u8>, String> {
        let mut root = Root::default();
        self.base(&mut root, &["xen-netfront"], include_str!("../../../../lab/xen/guest.sh"))?;
        self.installed(&mut root, "ip")?;
        root.file("etc/rules", rules());
        packed(&root)
    }

    /// Makes that of domain 0: Xen's tools, the programs that Weir runs, Weir itself, and the
    /// guests' kernel and initramfs.
    pub(super) fn domain_0(&self, guest: Vec<u8>) -> Result<Vec<u8>, String> {
        let mut root = Root::default();
        self.base(&mut root, MODULES, include_str!("../../../../lab/xen/dom0.sh"))?;
        for program in XEN_PROGRAMS {
            let path = format!("usr/lib/xen-4.17/bin/{program}");
            self.program(&mut root, &self.tree.join(&path), &path)?;
        }
        for program in STORE_PROGRAMS {
            let path = format!("usr/bin/{program}");
            self.program(&mut root, &self.tree.join(&path), &path)?;
        }
        self.installed(&mut root, "ip")?;
        self.installed(&mut root, "tc")?;
        for (from, to) in self.programs.iter().zip(["usr/bin/weir", "usr/bin/weir-lab"]) {
            self.program(&mut root, from, to)?;
        }
        // The thread library loads it by name when a thread is ended; no program is linked to it.
        let unwinder = Path::new("/lib/x86_64-linux-gnu/libgcc_s.so.1");
        self.library(&mut root, unwinder)?;
        root.file("etc/xen/xl.conf", "autoballoon=\"off\"\n");
        root.program("etc/xen/scripts/vif-weir", include_str!("../../../../lab/xen/vif.sh"));
        for (domain, guest) in (1..).zip(GUESTS) {
            let path = format!("etc/xen/guests/{}", guest.name());
            root.file(&format!("{path}.cfg"), guest.config());
            root.file(&format!("{path}.ip"), guest.network(domain));
            root.file(&format!("{path}.sh"), guest.settings(domain));
        }
        root.file("boot/vmlinux", self.kernel);
        root.file("boot/guest", guest);
        packed(&root)
    }

    fn base(&self, root: &mut Root, modules: &[&str], init: &str) -> Result<(), String> {
        for folder in ["proc", "sys", "dev", "tmp", "run", "out", "var/lib/xen", "var/log/xen"] {
            root.folder(folder);
        }
        let busybox = self.tree.join("bin/busybox");
        root.program("bin/busybox", fs::read(&busybox).map_err(|e| named(&busybox, &e))?);
        for applet in output(Command::new(&busybox).arg("--list"))?.lines() {
            root.link(&format!("bin/{applet}"), "busybox");
        }
        for (place, (name, content)) in (10..).zip(self.modules.with_needs(modules)?) {
            root.file(&format!("lib/modules/{place}-{name}.ko"), content);
        }
        root.program("init", init);
        Ok(())
    }

    /// Adds a program of this machine, as its shell finds it.
    fn installed(&self, root: &mut Root, name: &str) -> Result<(), String> {
        let path = output(Command::new("sh").args(["-c", &format!("command -v {name}")]))?;
        self.program(root, Path::new(path.trim()), &format!("sbin/{name}"))
    }

    /// Adds a program with the libraries that it is linked with, as the loader finds them.
    fn program(&self, root: &mut Root, from: &Path, to: &str) -> Result<(), String> {
        let content = fs::read(from).map_err(|error| named(from, &error))?;
        root.program(to, content);
        let libraries = self.tree.join(LIBRARIES);
        let mut ldd = Command::new("ldd");
        let found = output(ldd.arg(from).env("LD_LIBRARY_PATH", libraries))?;
        linked(&found).iter().try_for_each(|library| self.library(root, library))
    }

    /// Adds a library at its place on this machine, or where its package would install it.
    fn library(&self, root: &mut Root, path: &Path) -> Result<(), String> {
        let place = path.strip_prefix(self.tree).unwrap_or(path).to_string_lossy().into_owned();
        if !root.has(&place) {
            root.program(&place, fs::read(path).map_err(|error| named(path, &error))?);
        }
        Ok(())
    }
}

/// Returns the paths in the output of `ldd`.
fn linked(text: &str) -> BTreeSet<PathBuf> {
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// Compresses fast rather than well, since an emulated processor unpacks it, once.
fn packed(root: &Root) -> Result<Vec<u8>, String> {
    filtered("gzip", &["-1"], &root.archive(), Ending::Well)
}

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

const MODULES: &[&str] = &[
    "xen-evtchn",
    "xen-gntdev",
    "xen-gntalloc",
    "xen-privcmd",
    "xenfs",
    "xen-netback",
    "virtio_pci",
    "virtio_blk",
    "tun",
];

const XEN_PROGRAMS: [&str; 5] =
    ["xl", "xenstored", "xenconsoled", "xen-init-dom0", "libxl-save-helper"];

const STORE_PROGRAMS: [&str; 4] =
    ["xenstore-read", "xenstore-write", "xenstore-ls", "xenstore-exists"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_paths_that_the_loader_names() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let paths: Vec<_> = linked(text).into_iter().collect();
        assert_eq!(paths, [Path::new("/lib/libc.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]);
    }
}
