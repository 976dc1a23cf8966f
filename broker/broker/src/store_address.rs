// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address of a broker's store: a file of SQLite, or a database of PostgreSQL.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Address of a store. Text that begins with `postgresql://` or `postgres://` is a URL, anything
/// else a path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum StoreAddress {
    /// A file of SQLite, for one broker at a time.
    File(PathBuf),
    /// A database of PostgreSQL, for any number of brokers: its URL, which has no password.
    PostgreSql(String),
}

impl StoreAddress {
    /// Returns true if several brokers work on the store at the same time.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self, Self::PostgreSql(_))
    }

    /// Returns the address as the database's client takes it. It may have a password, and is not
    /// to be shown.
    ///
    /// # Errors
    /// The file of the password cannot be read, in words.
    pub(crate) fn url(&self, password: Option<&Path>) -> Result<String, String> {
        match self {
            Self::File(path) => {
                let bytes = path.as_os_str().as_encoded_bytes();
                Ok(format!("sqlite:{}?mode=rwc", encoded(bytes)))
            }
            Self::PostgreSql(url) => {
                let Some(file) = password else { return Ok(url.clone()) };
                let wrong = |what: &str| format!("{}: {what}", file.display());
                let text = std::fs::read_to_string(file).map_err(|of| wrong(&of.to_string()))?;
                let text = text.trim_end_matches(['\r', '\n']);
                if !(1..=PASSWORD_MAX).contains(&text.len()) {
                    return Err(wrong(&format!("a password has 1 to {PASSWORD_MAX} bytes")));
                }
                let joint = if url.contains('?') { '&' } else { '?' };
                Ok(format!("{url}{joint}password={}", encoded(text.as_bytes())))
            }
        }
    }
}

impl TryFrom<String> for StoreAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let Some(rest) = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)) else {
            return Ok(Self::File(text.into()));
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let user = place.split('/').next().and_then(|of| of.rsplit_once('@')).map(|(of, _)| of);
        let is_key = |pair: &str| pair.split('=').next() == Some("password");
        if user.is_some_and(|user| user.contains(':')) || query.split('&').any(is_key) {
            return Err("store: a password in the URL; name its file with store_password".into());
        }
        Ok(Self::PostgreSql(text))
    }
}

/// Returns bytes as a URL has them, where every other reader takes them as they are.
fn encoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                text.push(char::from(*byte));
            }
            other => {
                let _infallible = write!(text, "%{other:02X}");
            }
        }
    }
    text
}

const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

/// Bytes of a password.
const PASSWORD_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a path is taken as it is, whatever is in it; a URL never has a password, which comes
    /// from its file alone.
    #[test]
    fn a_password_comes_from_its_file_alone() {
        let read = |text: &str| StoreAddress::try_from(text.to_owned());
        let file = read("/var/a b?c/../d.sqlite").unwrap();
        assert!(!file.is_shared());
        assert_eq!(file.url(None).unwrap(), "sqlite:%2Fvar%2Fa%20b%3Fc%2F..%2Fd.sqlite?mode=rwc");
        for wrong in [
            "postgres://me:secret@host/weir",
            "postgresql:///weir?password=secret",
            "postgresql:///weir?host=/run&password=secret",
        ] {
            let fault = read(wrong).unwrap_err();
            assert!(fault.contains("store_password") && !fault.contains("secret"), "{fault}");
        }
        let database = read("postgresql://me@host:5432/weir?sslmode=verify-full").unwrap();
        assert!(database.is_shared());
        let folder = std::env::temp_dir().join(format!("weir-t-address-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let password = folder.join("password");
        std::fs::write(&password, "p&w d\n").unwrap();
        let url = database.url(Some(&password)).unwrap();
        assert!(url.ends_with("?sslmode=verify-full&password=p%26w%20d"), "{url}");
        std::fs::write(&password, "\n").unwrap();
        assert!(database.url(Some(&password)).unwrap_err().contains("1 to 1024 bytes"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(database.url(Some(&password)).unwrap_err().contains("password"));
    }
}
