// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Debian package in a root of its own: an overlay over this machine's, whose upper folder has
//! every file that was installed, and after the removal every file that stayed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_experiment::prelude::*;

/// Shows this part of the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let Some(package) = package() else {
        let text = format!(
            "SKIPPED deb: none in {FOLDER}; `cargo xtask deb` makes one, WEIR_DEB names it"
        );
        rec.say(&text);
        return Err(ExperimentError::Node(text));
    };
    let folder = std::env::temp_dir().join(format!("weir-node-deb-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| ExperimentError::io(&folder, error))?;
    let said = in_a_root_of_its_own(&package, &folder);
    let removed = std::fs::remove_dir_all(&folder);
    let seen = PackageFiles::of(&said?);
    removed.map_err(|error| ExperimentError::io(&folder, error))?;
    let configuration = Bound::equal(float(CONFIGURATION.len() as u64));
    for (part, what, files, bound) in [
        ("installed", "files that the package brought", &seen.installed, Bound::at_least(50.0)),
        ("runs", "of five commands, those that ran", &seen.ran, Bound::equal(5.0)),
        ("configuration", "files of configuration that stayed", &seen.kept, configuration),
        ("removed", "other files after the removal", &seen.stayed, Bound::equal(0.0)),
        ("purged", "files after the purge", &seen.purged, Bound::equal(0.0)),
    ] {
        let name = format!("deb/{part}");
        for file in
            files.iter().take(NAMED_MAX).filter(|_| !bound.is_kept_by(float(files.len() as u64)))
        {
            rec.say(&format!("{name}: {file}"));
        }
        rec.count(&name, what, files.len() as u64, bound)?;
    }
    Ok(())
}

/// Paths and names of commands that the package installs, runs, keeps and leaves.
#[derive(Default)]
struct PackageFiles {
    installed: BTreeSet<String>,
    ran: BTreeSet<String>,
    kept: BTreeSet<String>,
    stayed: BTreeSet<String>,
    purged: BTreeSet<String>,
}

impl PackageFiles {
    /// Reads the output of [`SCRIPT`].
    fn of(said: &str) -> Self {
        let mut seen = Self::default();
        for line in said.lines() {
            let Some((word, what)) = line.split_once(' ') else { continue };
            let what = what.trim_start_matches('.');
            let configuration = CONFIGURATION.iter().any(|prefix| what.starts_with(prefix));
            let set = match word {
                "installed" => &mut seen.installed,
                "ran" => &mut seen.ran,
                "removed" if FOLDERS.contains(&what) => continue,
                "removed" if configuration => &mut seen.kept,
                "removed" => &mut seen.stayed,
                "purged" => &mut seen.purged,
                _ => continue,
            };
            // Leaves out the files that dpkg itself writes for any package.
            if !DPKG.iter().any(|prefix| what.starts_with(prefix)) {
                set.insert(what.to_owned());
            }
        }
        seen
    }
}

/// Returns the package that `WEIR_DEB` names, or the newest one in [`FOLDER`].
fn package() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("WEIR_DEB") {
        return Some(PathBuf::from(given));
    }
    let files = std::fs::read_dir(FOLDER).ok()?.flatten().map(|entry| entry.path());
    let packages = files.filter(|path| path.extension().is_some_and(|name| name == "deb"));
    packages.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
}

/// Runs the script in mount, network and process namespaces of its own: no script of the package
/// reaches a device, a node or a lab of this machine.
fn in_a_root_of_its_own(package: &Path, folder: &Path) -> Result<String> {
    let package = package.canonicalize().map_err(|error| ExperimentError::io(package, error))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-euc", SCRIPT]);
    let output = command.arg("sh").arg(folder).arg(package).output();
    let output = output.map_err(|error| ExperimentError::io("unshare", error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(ExperimentError::Node(format!("the package: {}: {said}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Installs and removes a package. `$1` is an empty folder, `$2` the package. Folders count as
/// files, but those that existed before do not. The script puts a node's files in their places, so
/// that their removal is seen.
const SCRIPT: &str = r#"
mount -t tmpfs none "$1"
cd "$1"
mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=upper,workdir=work" root
mount -t proc none root/proc
mount --bind /dev root/dev
mount -t tmpfs none root/run
mkdir root/run/netns
mount --bind /sys root/sys
mkdir new
cp "$2" new/weir.deb
mount --bind new root/mnt
inside() { chroot root env PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
files() {
    (cd upper && find . -mindepth 1 ! -type c) | while read -r path; do
        [ -d "upper/$path" ] && [ -d "/$path" ] && continue
        [ -d "upper/$path" ] && echo "$1 $path/" || echo "$1 $path"
    done
    (cd root/run && find . -mindepth 1 ! -path ./netns -printf "$1 ./run/%P\n")
}
# dpkg of the lower root may know of what is not there any more.
rm -rf root/etc/weir root/var/lib/weir
inside dpkg --force-depends --install /mnt/weir.deb >&2
files installed
inside weir --version | grep -q ^weir && echo "ran version"
inside weir completions bash | grep -q complete && echo "ran completions"
inside weir broker check /usr/share/doc/weir/examples/broker.toml && echo "ran broker"
inside weir node run --config /usr/share/doc/weir/examples/node.toml --dry-run >out 2>&1 || true
grep -q "The policy, with its defaults" out && echo "ran dry-run"
inside test -x /usr/share/weir/hooks/xen-vif && echo "ran hook"
inside mkdir -p /var/lib/weir /run/weir
inside cp /usr/share/doc/weir/examples/node.toml /etc/weir/edge1.toml
for name in policy-edge1.sqlite overlay-edge1.json changes-edge1.json service-edge1.json \
    broker.sqlite; do
    inside cp /etc/weir/edge1.toml "/var/lib/weir/$name"
done
inside mkdir -p /etc/systemd/system/multi-user.target.wants
inside ln -s /lib/systemd/system/weir-node@.service \
    /etc/systemd/system/multi-user.target.wants/weir-node@edge1.service
inside dpkg --remove weir >&2
files removed
inside dpkg --purge weir >&2
files purged
"#;

/// The folder in which `cargo xtask deb` puts packages.
const FOLDER: &str = "target/debian";

/// Files that stay after a removal: the operator's policy, the defaults of the unit, the enabled
/// instance, the live changes above the policy, and a broker's store.
const CONFIGURATION: [&str; 6] = [
    "/etc/weir/edge1.toml",
    "/etc/default/weir-node",
    "/etc/systemd/system/multi-user.target.wants/weir-node@edge1.service",
    "/var/lib/weir/overlay-edge1.json",
    "/var/lib/weir/policy-edge1.sqlite",
    "/var/lib/weir/broker.sqlite",
];

/// The folders of these files.
const FOLDERS: [&str; 2] = ["/etc/weir/", "/var/lib/weir/"];

/// The files of the package manager, and of the tools that it calls.
const DPKG: [&str; 5] =
    ["/var/lib/dpkg", "/var/log", "/var/cache/man", "/var/lib/systemd", "/var/cache/debconf"];

/// The most misplaced files that are named.
const NAMED_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_told_from_configuration_and_from_dpkg_s_own() {
        let seen = PackageFiles::of(
            "installed ./usr/bin/weir\nremoved ./etc/weir/edge1.toml\nremoved ./etc/weir/\n\
             removed ./var/lib/dpkg/status\nremoved ./usr/bin/weir\npurged ./var/log/dpkg.log\n",
        );
        let names = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
        assert_eq!(names(&seen.kept), ["/etc/weir/edge1.toml"]);
        assert_eq!(names(&seen.stayed), ["/usr/bin/weir"]);
        assert_eq!((names(&seen.installed), seen.purged.len()), (vec!["/usr/bin/weir".into()], 0));
    }
}
