// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unpacks a kernel's package: takes the kernel itself, and modules with their dependencies.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use super::packages::named;

/// Returns the kernel as an ELF file, from the `vmlinuz` that holds it compressed. Xen and QEMU's
/// own loader accept it, and boot it three times as fast as one that unpacks itself.
pub(super) fn unpacked(vmlinuz: &Path) -> Result<Vec<u8>, String> {
    let packed = fs::read(vmlinuz).map_err(|error| named(vmlinuz, &error))?;
    for (magic, program) in PACKERS {
        for at in (0..packed.len()).filter(|at| packed[*at..].starts_with(magic)) {
            // The magic may occur by chance, and other data follow the kernel, so the status of the
            // program says nothing.
            let kernel = filtered(program, &["-dc"], &packed[at..], Ending::Whatever)?;
            if kernel.starts_with(b"\x7fELF") {
                return Ok(kernel);
            }
        }
    }
    Err(format!("{}: no kernel in it that xz or zstd unpack", vmlinuz.display()))
}

/// The exit status that a filter must have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Well,
    Whatever,
}

/// Returns the output of a filter.
pub(super) fn filtered(
    program: &str,
    arguments: &[&str],
    input: &[u8],
    ending: Ending,
) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let pipe = child.stdin.take();
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            // A program may stop reading early; its status tells whether that is a failure.
            pipe.map(|mut pipe| pipe.write_all(input))
        });
        child.wait_with_output()
    });
    let output = output.map_err(failed)?;
    match output.status.success() || ending == Ending::Whatever {
        true => Ok(output.stdout),
        false => Err(format!("{program}: {}", output.status)),
    }
}

/// The modules of a kernel: files by name.
pub(super) struct Modules(BTreeMap<String, PathBuf>);

impl Modules {
    /// Finds all modules below a folder.
    pub(super) fn below(folder: &Path) -> Result<Self, String> {
        let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(|error| named(&folder, &error))? {
                let path = entry.map_err(|error| named(&folder, &error))?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "ko") {
                    let name = path.file_stem().unwrap_or_default().to_string_lossy();
                    found.insert(plain(&name), path);
                }
            }
        }
        Ok(Self(found))
    }

    /// Returns the contents of modules and of their dependencies, in an order in which they can be
    /// loaded.
    pub(super) fn with_needs(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>, String> {
        let mut loaded = Vec::new();
        names.iter().try_for_each(|name| self.load(&plain(name), &mut loaded))?;
        Ok(loaded)
    }

    fn load(&self, name: &str, loaded: &mut Vec<(String, Vec<u8>)>) -> Result<(), String> {
        if loaded.iter().any(|(there, _)| there == name) {
            return Ok(());
        }
        let path = self.0.get(name).ok_or_else(|| format!("this kernel has no module {name}"))?;
        let content = fs::read(path).map_err(|error| named(path, &error))?;
        for need in needs(&content) {
            self.load(&plain(&need), loaded)?;
        }
        loaded.push((name.to_owned(), content));
        Ok(())
    }
}

/// Returns the name of a module as the kernel spells it: with `_` where its file may have `-`.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns the modules that a module depends on, from its section `.modinfo`: `depends=a,b\0`.
fn needs(module: &[u8]) -> Vec<String> {
    let Some(at) = module.windows(DEPENDS.len()).position(|window| window == DEPENDS) else {
        return Vec::new();
    };
    let list = module[at + DEPENDS.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(list);
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

const DEPENDS: &[u8] = b"\0depends=";

/// The first bytes of compressed data, and the program that unpacks them.
const PACKERS: [(&[u8], &str); 2] = [(b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_read_from_the_module_itself() {
        assert_eq!(needs(b"license=GPL\0depends=llc,stp\0name=bridge\0"), ["llc", "stp"]);
        assert_eq!(needs(b"license=GPL\0depends=\0name=llc\0"), [""; 0]);
        assert_eq!(needs(b"nothing"), [""; 0]);
    }

    #[test]
    fn a_module_comes_after_what_it_needs_and_once() {
        let folder = std::env::temp_dir().join(format!("weir-modules-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, content) in [
            ("xen-netback", &b"\0depends=x,y-z\0"[..]),
            ("x", b"\0depends=y_z\0"),
            ("y-z", b"\0depends=\0"),
        ] {
            fs::write(folder.join(format!("{name}.ko")), content).unwrap();
        }
        let modules = Modules::below(&folder).unwrap();
        let loaded = modules.with_needs(&["xen_netback", "x"]).unwrap();
        let names: Vec<&str> = loaded.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["y_z", "x", "xen_netback"]);
        let error = modules.with_needs(&["w"]).unwrap_err();
        assert_eq!(error, "this kernel has no module w");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_filter_that_fails_is_named() {
        let text = filtered("tr", &["a", "b"], b"abc", Ending::Well).unwrap();
        assert_eq!(text, b"bbc");
        assert!(filtered("false", &[], b"", Ending::Well).unwrap_err().starts_with("false: "));
        assert!(filtered("false", &[], b"", Ending::Whatever).is_ok());
    }
}
