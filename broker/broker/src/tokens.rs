// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tokens of the configuration, by which callers of the interface are known.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::config_values::name;

/// A caller of the interface.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerToken {
    /// Its owner's unique name: 1 to 24 letters, digits and '-'.
    pub name: String,
    /// SHA-256 of the token, as hexadecimal digits. No two tokens are the same.
    pub sha256: String,
    /// The network that its owner manages; without one, all.
    pub network: Option<String>,
}

impl BrokerToken {
    /// Returns true if its owner may see this network.
    pub(crate) fn sees(&self, network: &str) -> bool {
        self.network.as_deref().is_none_or(|own| own == network)
    }
}

/// Checks tokens against these networks and each other. Of two tokens with one digest the first
/// would count, whatever network the second is for; names tell owners apart, in the history and
/// in the store's idempotency keys.
pub(crate) fn check_tokens(
    tokens: &[BrokerToken],
    networks: &BTreeSet<&String>,
) -> Result<(), String> {
    let (mut names, mut digests) = (BTreeSet::new(), BTreeSet::new());
    for BrokerToken { name: own, sha256, network } in tokens {
        name("token", own)?;
        if !names.insert(own) {
            return Err(format!("token \"{own}\": named twice"));
        }
        if network.as_ref().is_some_and(|network| !networks.contains(network)) {
            return Err(format!("token \"{own}\": its network is not there"));
        }
        if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("token \"{own}\": sha256 has not 64 digits"));
        }
        if !digests.insert(sha256.to_ascii_lowercase()) {
            return Err(format!("token \"{own}\": its sha256 is that of another token"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::test_config;

    /// Goal: no two tokens are the same or have one name, and names are those of other things, so
    /// that a token has one network and `NAME/KEY` one meaning.
    #[test]
    fn tokens_differ_in_name_and_digest() {
        let network = test_config::pair("blue", 1);
        let parse = |second: [&str; 2]| {
            let [name, digit] = second;
            let token = |name: &str, digit: &str| {
                format!("[[broker.token]]\nname = \"{name}\"\nsha256 = \"{}\"\n", digit.repeat(64))
            };
            let first = token("admin", "a") + "network = \"blue\"\n";
            test_config::parse(&(first + &token(name, digit) + &network))
        };
        assert_eq!(parse(["admin-2", "b"]).unwrap().broker.token.len(), 2);
        for (second, why) in [
            (["other", "a"], "token \"other\": its sha256 is that of another token"),
            (["other", "A"], "token \"other\": its sha256 is that of another token"),
            (["admin", "b"], "token \"admin\": named twice"),
            (["a/b", "b"], "token \"a/b\": 1 to 24 letters, digits and '-'"),
            (["", "b"], "token \"\": 1 to 24 letters"),
        ] {
            assert_eq!(parse(second).unwrap_err().get(..why.len()), Some(why));
        }
    }
}
