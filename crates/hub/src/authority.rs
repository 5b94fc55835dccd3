//! The scheduler's own authority: it signs the certificate of the server and one for each node that joins.

use std::fs;
use std::path::{Path, PathBuf};

use dovetail_cluster::write_private;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use ring::digest::{SHA256, digest};

use crate::token::JoinToken;

/// What can go wrong with keys and certificates.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file of it.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A key or certificate.
    #[error("{what}: {why}")]
    Bad {
        /// Which.
        what: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Keys and certificates of a scheduler, in a folder that only it can read.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    token: JoinToken,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({})", self.token.fingerprint)
    }
}

fn bad(what: &str) -> impl Fn(rcgen::Error) -> AuthorityError {
    let what = what.to_owned();
    move |e| AuthorityError::Bad {
        what: what.clone(),
        why: e.to_string(),
    }
}

impl Authority {
    /// The authority in this folder; a new one if there is none.
    ///
    /// # Errors
    /// When a file cannot be read or written, or does not hold what it should.
    pub fn open(dir: &Path) -> Result<Self, AuthorityError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| AuthorityError::File { path, source }
        };
        fs::create_dir_all(dir).map_err(at(dir))?;
        let (key_path, ca_path) = (dir.join("ca.key"), dir.join("ca.pem"));
        let token_path = dir.join("join-token");
        if !ca_path.exists() {
            let key = KeyPair::generate().map_err(bad("a new key"))?;
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, "Dovetail");
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            let certificate = params.self_signed(&key).map_err(bad("a new certificate"))?;
            write_private(&key_path, key.serialize_pem().as_bytes()).map_err(at(&key_path))?;
            write_private(&ca_path, certificate.pem().as_bytes()).map_err(at(&ca_path))?;
        }
        let certificate = fs::read_to_string(&ca_path).map_err(at(&ca_path))?;
        let key = fs::read_to_string(&key_path).map_err(at(&key_path))?;
        let key = KeyPair::from_pem(&key).map_err(bad(&key_path.display().to_string()))?;
        let issuer =
            Issuer::from_ca_cert_pem(&certificate, key).map_err(bad(&ca_path.display().to_string()))?;
        let fingerprint = fingerprint(&certificate)?;
        if !token_path.exists() {
            let token = JoinToken::generate(&fingerprint);
            write_private(&token_path, format!("{token}\n").as_bytes()).map_err(at(&token_path))?;
        }
        let token = fs::read_to_string(&token_path).map_err(at(&token_path))?;
        let token: JoinToken = token.parse().map_err(|why| AuthorityError::Bad {
            what: token_path.display().to_string(),
            why,
        })?;
        Ok(Self {
            issuer,
            certificate,
            token,
        })
    }

    /// The certificate of the authority, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// What a new node must show.
    pub fn join_token(&self) -> &JoinToken {
        &self.token
    }

    /// A key and a certificate (with the authority's behind it) for a server of these names and addresses.
    ///
    /// # Errors
    /// When one of them is no name.
    pub fn server_identity(&self, names: &[String]) -> Result<(String, String), AuthorityError> {
        let key = KeyPair::generate().map_err(bad("a new key"))?;
        let mut params = CertificateParams::new(names.to_vec()).map_err(bad("the server's names"))?;
        params
            .distinguished_name
            .push(DnType::CommonName, "Dovetail server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(bad("the server's certificate"))?;
        let chain = format!("{}{}", certificate.pem(), self.certificate);
        Ok((chain, key.serialize_pem()))
    }

    /// A certificate for a node, for the key it asks with.
    ///
    /// # Errors
    /// When the request is not one.
    pub fn sign_node(&self, node: &str, request: &str) -> Result<String, AuthorityError> {
        let mut asked = CertificateSigningRequestParams::from_pem(request)
            .map_err(bad("the certificate signing request"))?;
        // Only the key of the request counts; what it says of itself does not.
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, node);
        if let Ok(name) = node.try_into() {
            params.subject_alt_names = vec![SanType::DnsName(name)];
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        asked.params = params;
        let signed = asked
            .signed_by(&self.issuer)
            .map_err(bad("the node's certificate"))?;
        Ok(signed.pem())
    }
}

/// The name of the node a certificate (DER) was given to.
pub(crate) fn node_of(der: &[u8]) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}

fn fingerprint(certificate: &str) -> Result<String, AuthorityError> {
    let parsed = pem::parse(certificate).map_err(|e| AuthorityError::Bad {
        what: "the authority's certificate".to_owned(),
        why: e.to_string(),
    })?;
    let hash = digest(&SHA256, parsed.contents());
    Ok(hash.as_ref().iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_authority_is_the_same_when_it_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = Authority::open(dir.path()).unwrap();
        let again = Authority::open(dir.path()).unwrap();
        assert_eq!(first.certificate(), again.certificate());
        assert_eq!(first.join_token(), again.join_token());
        for file in ["ca.key", "join-token"] {
            let mode = fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        fs::write(dir.path().join("ca.key"), "nonsense").unwrap();
        let error = Authority::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("ca.key"), "{error}");
    }

    #[test]
    fn a_node_gets_the_name_it_joined_with_whatever_its_request_says() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open(dir.path()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["someone-else".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "someone-else");
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let certificate = authority.sign_node("node-1", &request).unwrap();
        let der = pem::parse(certificate).unwrap();
        assert_eq!(node_of(der.contents()).as_deref(), Some("node-1"));
        assert!(authority.sign_node("node-1", "nonsense").is_err());
    }
}
