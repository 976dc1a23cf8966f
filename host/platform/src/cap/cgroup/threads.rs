// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of a control group and of all groups below it.
//!
//! Libvirt has the virtual processors of a guest in sub-groups of the guest's group (`vcpu0`,
//! `emulator`), in version 2 as threaded groups, whose `cgroup.procs` cannot be read. So the
//! threads are read, of each group.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::HostError;
use crate::process::Identity;

/// Returns the threads of the control group at `path` and of the groups below it.
///
/// # Errors
/// It is no control group, it cannot be read, or there are more than [`GROUPS_MAX`] groups.
pub fn threads_in(path: &Path) -> Result<Vec<Identity>, HostError> {
    Ok(thread_ids(path)?.into_iter().filter_map(Identity::of).collect())
}

fn thread_ids(path: &Path) -> Result<Vec<u32>, HostError> {
    let (mut ids, mut groups, mut read) = (Vec::new(), vec![path.to_owned()], 0);
    while let Some(group) = groups.pop() {
        if read >= GROUPS_MAX {
            return Err(HostError::Refused(format!(
                "control group {}: more than {GROUPS_MAX} groups in it",
                path.display()
            )));
        }
        read += 1;
        let found = ids_of(&group).and_then(|of| Ok((of, below(&group)?)));
        match found {
            Ok((of, below)) => {
                ids.extend(of);
                groups.extend(below);
            }
            // A group below may go at any time.
            Err(error) if error.kind() == ErrorKind::NotFound && group != path => {}
            Err(error) => return Err(HostError::io("read the threads of", &group, error)),
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// Reads the threads of one group: `cgroup.threads` of version 2, `tasks` of version 1.
fn ids_of(group: &Path) -> std::io::Result<Vec<u32>> {
    let text = match fs::read_to_string(group.join("cgroup.threads")) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::read_to_string(group.join("tasks"))?
        }
        other => other?,
    };
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

fn below(group: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(group)?.flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(folders.map(|entry| entry.path()).collect())
}

/// The most groups that are walked: a guest has one for each of its virtual processors.
pub const GROUPS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a guest's threads are found as libvirt lays them out, in both versions.
    #[test]
    fn the_threads_of_all_groups_below_are_those_of_the_group() {
        let base = std::env::temp_dir().join(format!("weir-group-threads-{}", std::process::id()));
        let write = |group: &str, name: &str, text: &str| {
            fs::create_dir_all(base.join(group)).unwrap();
            fs::write(base.join(group).join(name), text).unwrap();
        };
        for name in ["cgroup.threads", "tasks"] {
            write("guest", name, "");
            write("guest/libvirt", name, "");
            write("guest/libvirt/emulator", name, "17\n");
            write("guest/libvirt/vcpu0", name, "19\n");
            write("guest/libvirt/vcpu1", name, "20\n18\n");
            // Processes are of no interest, and a threaded group's cannot be read.
            write("guest/libvirt/vcpu1", "cgroup.procs", "no number\n");
            assert_eq!(thread_ids(&base.join("guest")).unwrap(), [17, 18, 19, 20], "{name}");
            assert_eq!(thread_ids(&base.join("guest/libvirt/vcpu0")).unwrap(), [19]);
            fs::remove_dir_all(&base).unwrap();
        }
        let gone = thread_ids(&base).unwrap_err().to_string();
        assert!(gone.contains("read the threads of"), "{gone}");
        let many = base.join("many");
        (0..GROUPS_MAX).for_each(|n| write(&format!("many/{n}"), "tasks", ""));
        write("many", "tasks", "");
        let refused = thread_ids(&many).unwrap_err().to_string();
        assert!(refused.contains("more than 1024 groups"), "{refused}");
        fs::remove_dir_all(&base).unwrap();
    }
}
