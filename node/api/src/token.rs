// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A new token: 256 random bits, as hexadecimal digits.

use ring::rand::{SecureRandom, SystemRandom};
use weir_policy::Digest;

use crate::caller::sha256;

/// Makes a token and its digest. The token is for its owner, the digest for the policy.
///
/// # Errors
/// The system gives no random bits.
pub fn new() -> std::io::Result<(String, Digest)> {
    let mut bits = [0; 32];
    SystemRandom::new()
        .fill(&mut bits)
        .map_err(|_| std::io::Error::other("the system gives no random bits"))?;
    let token = Digest(bits).to_string();
    let digest = sha256(token.as_bytes());
    Ok((token, digest))
}
