//! Signs the checksums, and so everything they name. A signature is what `cosign verify-blob --key` and `openssl dgst
//! -verify` check: ECDSA on the curve P-256 over SHA-256, in base64.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";
/// A key has a few hundred bytes.
const LONGEST: u64 = 64 << 10;

/// A key that signs.
pub(super) struct Signer {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    /// From a file. Nothing of it is ever part of a message.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let how = "a key is made with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem`";
        let shown = file.display();
        let size =
            fs::metadata(file).with_context(|| format!("the key {shown} cannot be read; {how}"))?.len();
        if size > LONGEST {
            bail!("{shown} has {size} bytes, which no key has; {how}");
        }
        let text =
            fs::read_to_string(file).with_context(|| format!("the key {shown} cannot be read; {how}"))?;
        if text.contains("ENCRYPTED PRIVATE KEY") {
            bail!("the key {shown} is encrypted; decrypt it with `openssl pkcs8 -in {shown} -out key.pem`");
        }
        let body = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(body, _)| body);
        let body = body.ok_or_else(|| anyhow!("{shown} has no line `{BEGIN}`; {how}"))?;
        let body: String = body.split_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|_| anyhow!("the key in {shown} is not base64; {how}"))?;
        let random = SystemRandom::new();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der, &random).map_err(|why| {
                anyhow!("the key in {shown} cannot sign ({why}); it must be one on the curve P-256: {how}")
            })?;
        Ok(Self { key, random })
    }

    /// In base64, checked.
    pub(super) fn sign(&self, data: &[u8]) -> Result<String> {
        let signature = self.key.sign(&self.random, data).map_err(|_| anyhow!("the key does not sign"))?;
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, self.key.public_key());
        public
            .verify(data, signature.as_ref())
            .map_err(|_| anyhow!("internal error (bug): the signature is wrong"))?;
        Ok(STANDARD.encode(signature.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use super::*;

    fn openssl(folder: &Path, arguments: &[&str]) -> bool {
        let mut command = Command::new("openssl");
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        command.output().expect("openssl starts").status.success()
    }

    /// A key of OpenSSL's in a folder of its own.
    fn key(curve: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let curve = format!("ec_paramgen_curve:{curve}");
        assert!(openssl(
            folder.path(),
            &["genpkey", "-algorithm", "EC", "-pkeyopt", &curve, "-out", "key.pem"]
        ));
        let file = folder.path().join("key.pem");
        (folder, file)
    }

    #[test]
    fn openssl_verifies_it_and_refuses_other_text() {
        let (folder, file) = key("P-256");
        let folder = folder.path();
        assert!(openssl(folder, &["pkey", "-in", "key.pem", "-pubout", "-out", "key.pub"]));
        let signature = Signer::read(&file).unwrap().sign(b"sums").unwrap();
        fs::write(folder.join("sums.sig"), STANDARD.decode(signature).unwrap()).unwrap();
        let verify = ["dgst", "-sha256", "-verify", "key.pub", "-signature", "sums.sig", "sums"];
        fs::write(folder.join("sums"), "sums").unwrap();
        assert!(openssl(folder, &verify));
        fs::write(folder.join("sums"), "other").unwrap();
        assert!(!openssl(folder, &verify));
    }

    #[test]
    fn a_key_that_cannot_be_used_is_named_with_the_way_to_make_one() {
        let error = |file: &Path| format!("{:#}", Signer::read(file).err().expect("it is refused"));
        let folder = tempfile::tempdir().unwrap();
        let missing = error(&folder.path().join("none"));
        assert!(missing.contains("none cannot be read; a key is made with `openssl genpkey"), "{missing}");
        let text = folder.path().join("text");
        fs::write(&text, "not a key").unwrap();
        assert!(error(&text).contains("has no line `-----BEGIN PRIVATE KEY-----`"), "{}", error(&text));
        let (_folder, other) = key("P-384");
        assert!(error(&other).contains("it must be one on the curve P-256"), "{}", error(&other));
        let (folder, _) = key("P-256");
        let encrypt = ["pkcs8", "-topk8", "-in", "key.pem", "-out", "locked.pem", "-passout", "pass:secret"];
        assert!(openssl(folder.path(), &encrypt));
        let locked = error(&folder.path().join("locked.pem"));
        assert!(locked.contains("is encrypted; decrypt it"), "{locked}");
    }
}
