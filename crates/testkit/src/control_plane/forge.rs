//! Tokens that the API server would not issue, signed with its own key.

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use rcgen::KeyPair;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::Value;

use super::ControlPlane;

impl ControlPlane {
    /// A token as `token` is, with other claims, and signed like it: what a clock, a former configuration or a stolen
    /// key could bring forth.
    pub fn resign(&self, token: &str, change: impl FnOnce(&mut Value)) -> Result<String> {
        let mut parts = token.split('.');
        let (Some(head), Some(claims), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            bail!("this is no token of a service account");
        };
        let claims = BASE64.decode(claims).context("the token's claims are not in base64")?;
        let mut claims: Value = serde_json::from_slice(&claims).context("the token's claims are not JSON")?;
        change(&mut claims);
        let signed = format!("{head}.{}", BASE64.encode(claims.to_string()));
        let path = self.home()?.pki().join("tokens.key");
        let pem =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let key = KeyPair::from_pem(&pem).with_context(|| format!("{} is no key", path.display()))?;
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.serialize_der(), &random)
            .map_err(|error| anyhow::anyhow!("{} cannot sign tokens: {error}", path.display()))?;
        let signature = key
            .sign(&random, signed.as_bytes())
            .map_err(|_| anyhow::anyhow!("{} did not sign the token", path.display()))?;
        Ok(format!("{signed}.{}", BASE64.encode(signature)))
    }
}
