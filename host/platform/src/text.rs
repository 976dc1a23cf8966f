// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads files that a person wrote, whole but within a bound: a file named by mistake may be a disk
//! image, or have no end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Returns the text of the file.
///
/// # Errors
/// It cannot be read, is no UTF-8, or is longer than [`BYTES_MAX`]: then the error has the bound.
pub fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::other(format!(
            "the file is longer than {BYTES_MAX} bytes, the most that is read of one"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        io::Error::other(format!("the file is no text: byte {place} is not UTF-8"))
    })
}

/// 16 MiB: a policy of 10 000 vifs is 3 MB.
pub const BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_or_is_no_text_is_refused_with_the_bound() {
        let zeros = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(zeros.contains("16777216"), "{zeros}");
        let program = read(Path::new("/proc/self/exe")).unwrap_err().to_string();
        assert!(program.contains("UTF-8") || program.contains("16777216"), "{program}");
        assert!(read(Path::new("/")).is_err());
        assert!(read(Path::new("/proc/self/status")).unwrap().starts_with("Name:"));
    }
}
