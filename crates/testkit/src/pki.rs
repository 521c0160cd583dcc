//! The certificates of one cluster, new for each.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate authority and the folder it writes to.
pub(crate) struct Pki {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    /// Makes the authority and the key that signs service-account tokens.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "volmedic-test-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("cannot make the key of the certificate authority")?;
        let certificate = params.self_signed(&key).context("cannot sign the certificate authority")?;
        write(&folder.join("ca.crt"), &certificate.pem())?;

        let tokens = KeyPair::generate().context("cannot make the key for service-account tokens")?;
        write(&folder.join("tokens.key"), &tokens.serialize_pem())?;
        write(&folder.join("tokens.pub"), &tokens.public_key_pem())?;
        Ok(Self { folder: folder.to_owned(), issuer: Issuer::new(params, key) })
    }

    /// A certificate that proves to be reached under each of `hosts`, names or addresses. It serves as the client
    /// side too, since etcd uses one for both.
    pub(crate) fn server(&self, name: &str, hosts: &[&str]) -> Result<()> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts)
            .with_context(|| format!("{name} has a host name that cannot be certified"))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(name, params)
    }

    /// A certificate that makes its holder `user` of `group`.
    pub(crate) fn client(&self, name: &str, user: &str, group: Option<&str>) -> Result<()> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(name, params)
    }

    fn issue(&self, name: &str, mut params: CertificateParams) -> Result<()> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().with_context(|| format!("cannot make the key of {name}"))?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("cannot sign the certificate of {name}"))?;
        write(&self.folder.join(format!("{name}.crt")), &certificate.pem())?;
        write(&self.folder.join(format!("{name}.key")), &key.serialize_pem())
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    let write = || {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
