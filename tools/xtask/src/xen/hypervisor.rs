// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Xen with the scheduler RTDS, which Debian's own build leaves out: built once from Debian's
//! source, with Debian's configuration and this scheduler in addition.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kernel::{Ending, filtered};
use super::packages::named;
use crate::command::{output, run};

/// Returns the hypervisor as an ELF file; builds it unless it is there. `tree` has the unpacked
/// packages, Debian's configuration of Xen among them.
///
/// # Errors
/// A program is missing, no source can be had, or it cannot be built.
pub(super) fn with_rtds(folder: &Path, tree: &Path) -> Result<PathBuf, String> {
    let built = folder.join(BUILT);
    if built.exists() {
        return Ok(built);
    }
    for (program, package) in PROGRAMS {
        let found = output(Command::new(program).arg("--version"));
        found.map_err(|_| format!("no {program} on this machine ({package})"))?;
    }
    let source = unpacked(&folder.join("source"))?;
    configure(&source, tree)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    run(make(&source).arg(format!("-j{jobs}")))?;
    let packed = source.join("xen/xen.gz");
    let packed = fs::read(&packed).map_err(|error| named(&packed, &error))?;
    let content = filtered("gzip", &["-dc"], &packed, Ending::Well)?;
    // A file that exists is not built again, so it must never be incomplete.
    let part = built.with_extension("part");
    fs::write(&part, content).map_err(|error| named(&part, &error))?;
    fs::rename(&part, &built).map_err(|error| named(&built, &error))?;
    fs::remove_dir_all(&source).map_err(|error| named(&source, &error))?;
    Ok(built)
}

/// Fetches the newest source of Xen that is available and unpacks it with Debian's patches. A
/// server may no longer have a version that its list names; then an older one serves as well.
fn unpacked(folder: &Path) -> Result<PathBuf, String> {
    let apt = SourceLists::fetched(folder)?;
    let text = output(apt.command("apt-cache").args(["showsrc", "xen"]))?;
    let mut failed = "the lists have no source of xen".to_owned();
    // Updates of a release are listed after it, so begin at the end.
    for version in versions(&text).into_iter().rev() {
        let mut fetch = apt.command("apt-get");
        fetch.args(["-qq", "source", "--download-only"]).arg(format!("xen={version}"));
        match run(fetch.current_dir(folder)) {
            Ok(()) => {
                let (description, source) = (folder.join(description(version)), folder.join("xen"));
                let _none = fs::remove_dir_all(&source);
                run(Command::new("dpkg-source").arg("-x").arg(description).arg(&source))?;
                return Ok(source);
            }
            Err(reason) => failed = reason,
        }
    }
    Err(format!("Debian's source of Xen: {failed}"))
}

/// Takes Debian's configuration, and adds the scheduler.
fn configure(source: &Path, tree: &Path) -> Result<(), String> {
    let debian = tree.join(CONFIGURATION);
    let text = fs::read_to_string(&debian).map_err(|error| named(&debian, &error))?;
    let own = source.join("xen/.config");
    fs::write(&own, text + RTDS).map_err(|error| named(&own, &error))?;
    run(make(source).arg("olddefconfig"))?;
    // Options that cannot be set are dropped silently.
    let text = fs::read_to_string(&own).map_err(|error| named(&own, &error))?;
    match text.lines().any(|line| line == WANTED) {
        true => Ok(()),
        false => Err(format!("{}: no {WANTED}", own.display())),
    }
}

fn make(source: &Path) -> Command {
    let mut make = Command::new("make");
    make.args(["--silent", "-C"]).arg(source.join("xen"));
    // A build fetches nothing, as under Debian's rules.
    make.args(["XEN_TARGET_ARCH=x86_64", "PYTHON=python3", "WGET=false", "GIT=false"]);
    make
}

/// The lists of Debian's sources, kept apart from this machine's lists, which may lack sources.
struct SourceLists {
    options: Vec<String>,
}

impl SourceLists {
    /// Fetches the lists of sources from the servers of this machine's packages.
    fn fetched(folder: &Path) -> Result<Self, String> {
        let lists = folder.join("lists");
        let partial = lists.join("partial");
        fs::create_dir_all(&partial).map_err(|error| named(&partial, &error))?;
        let format = "deb-src [signed-by=KEYRING] $(REPO_URI) $(RELEASE) $(COMPONENT)";
        let mut targets = Command::new("apt-get");
        targets.args(["indextargets", "--format", &format.replace("KEYRING", KEYRING)]);
        let lines = output(targets.args(["Created-By: Packages", "Origin: Debian"]))?;
        let list = folder.join("sources.list");
        fs::write(&list, lines).map_err(|error| named(&list, &error))?;
        let apt = Self {
            options: vec![
                format!("Dir::Etc::SourceList={}", list.display()),
                "Dir::Etc::SourceParts=/dev/null".to_owned(),
                format!("Dir::State::Lists={}", lists.display()),
                format!("Dir::Cache={}", folder.display()),
            ],
        };
        run(apt.command("apt-get").args(["-qq", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }
}

/// Returns the versions in the output of `apt-cache showsrc`.
fn versions(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("Version: ")).collect()
}

/// Returns the name of a source's `.dsc` file, which has no epoch.
fn description(version: &str) -> String {
    let version = version.split_once(':').map_or(version, |(_, version)| version);
    format!("xen_{version}.dsc")
}

/// The hypervisor that was built, in the folder of the lab.
pub(super) const BUILT: &str = "xen-rtds.elf";
const CONFIGURATION: &str = "boot/xen-4.17-amd64.config";
const WANTED: &str = "CONFIG_SCHED_RTDS=y";
const RTDS: &str = "CONFIG_EXPERT=y\nCONFIG_UNSUPPORTED=y\nCONFIG_SCHED_RTDS=y\n";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The programs that the build needs, each with its package.
const PROGRAMS: [(&str, &str); 6] = [
    ("dpkg-source", "dpkg-dev"),
    ("make", "make"),
    ("gcc", "gcc"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("python3", "python3"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_a_version_and_a_description_without_its_epoch() {
        let text = "Package: xen\nVersion: 4.17.5+72-1\nFormat: 3.0\n\nPackage: xen\n\
                    Version: 1:4.17.7+13-0\n";
        assert_eq!(versions(text), ["4.17.5+72-1", "1:4.17.7+13-0"]);
        assert_eq!(description("1:4.17.7+13-0"), "xen_4.17.7+13-0.dsc");
        assert_eq!(description("4.17.5+72-1"), "xen_4.17.5+72-1.dsc");
    }
}
