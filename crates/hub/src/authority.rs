//! The certificate authority of the scheduler, which signs the certificates of the server and of all nodes that join.

use std::fs;
use std::path::{Path, PathBuf};

use dovetail_cluster::write_private;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use ring::digest::{SHA256, digest};

use crate::token::{InvalidToken, JoinToken};

/// Why keys or certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system error.
        source: std::io::Error,
    },
    /// A key, certificate or request is not valid.
    #[error("{subject}: {source}")]
    Certificate {
        /// What is not valid.
        subject: String,
        /// What is wrong with it.
        source: rcgen::Error,
    },
    /// A file is not a certificate in PEM.
    #[error("invalid certificate of the authority: {0}")]
    Pem(#[from] pem::PemError),
    /// The join token is not valid.
    #[error("{}: {source}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: InvalidToken,
    },
}

/// Keys and certificates of a scheduler, in a folder that only its account can read.
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

fn invalid(subject: &str) -> impl Fn(rcgen::Error) -> AuthorityError {
    let subject = subject.to_owned();
    move |source| AuthorityError::Certificate {
        subject: subject.clone(),
        source,
    }
}

impl Authority {
    /// Opens the authority in a folder, and creates it if there is none.
    ///
    /// # Errors
    /// If a file cannot be read or written, or is not valid.
    pub fn open(dir: &Path) -> Result<Self, AuthorityError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| AuthorityError::File { path, source }
        };
        fs::create_dir_all(dir).map_err(at(dir))?;
        let (key_path, ca_path) = (dir.join("ca.key"), dir.join("ca.pem"));
        let token_path = dir.join("join-token");
        if !ca_path.exists() {
            let key = KeyPair::generate().map_err(invalid("a new key"))?;
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, "Dovetail");
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            let certificate = params.self_signed(&key).map_err(invalid("a new certificate"))?;
            write_private(&key_path, key.serialize_pem().as_bytes()).map_err(at(&key_path))?;
            write_private(&ca_path, certificate.pem().as_bytes()).map_err(at(&ca_path))?;
        }
        let certificate = fs::read_to_string(&ca_path).map_err(at(&ca_path))?;
        let key = fs::read_to_string(&key_path).map_err(at(&key_path))?;
        let key = KeyPair::from_pem(&key).map_err(invalid(&key_path.display().to_string()))?;
        let issuer =
            Issuer::from_ca_cert_pem(&certificate, key).map_err(invalid(&ca_path.display().to_string()))?;
        let fingerprint = fingerprint(&certificate)?;
        if !token_path.exists() {
            let token = JoinToken::generate(&fingerprint);
            write_private(&token_path, format!("{token}\n").as_bytes()).map_err(at(&token_path))?;
        }
        let token = fs::read_to_string(&token_path).map_err(at(&token_path))?;
        let token = token.parse().map_err(|source| AuthorityError::Token {
            path: token_path,
            source,
        })?;
        Ok(Self {
            issuer,
            certificate,
            token,
        })
    }

    /// Returns the certificate of the authority, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns the token that a new node needs to join.
    pub fn join_token(&self) -> &JoinToken {
        &self.token
    }

    /// Creates a certificate chain and a key for a server with these names and addresses.
    ///
    /// # Errors
    /// If a name is not valid.
    pub fn server_identity(&self, names: &[String]) -> Result<(String, String), AuthorityError> {
        let key = KeyPair::generate().map_err(invalid("a new key"))?;
        let mut params = CertificateParams::new(names.to_vec()).map_err(invalid("the server's names"))?;
        params
            .distinguished_name
            .push(DnType::CommonName, "Dovetail server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(invalid("the server's certificate"))?;
        let chain = format!("{}{}", certificate.pem(), self.certificate);
        Ok((chain, key.serialize_pem()))
    }

    /// Signs the certificate of a node, for the key of its request.
    ///
    /// # Errors
    /// If the request is not valid.
    pub fn sign_node(&self, node: &str, request: &str) -> Result<String, AuthorityError> {
        let mut request = CertificateSigningRequestParams::from_pem(request)
            .map_err(invalid("the certificate signing request"))?;
        // Only the key of the request is used; its names are not.
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, node);
        if let Ok(name) = node.try_into() {
            params.subject_alt_names = vec![SanType::DnsName(name)];
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        request.params = params;
        let signed = request
            .signed_by(&self.issuer)
            .map_err(invalid("the node's certificate"))?;
        Ok(signed.pem())
    }
}

/// Returns the name of the node in a certificate (DER).
pub(crate) fn node_of(der: &[u8]) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}

fn fingerprint(certificate: &str) -> Result<String, AuthorityError> {
    let parsed = pem::parse(certificate)?;
    let hash = digest(&SHA256, parsed.contents());
    Ok(hash.as_ref().iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_reopened_authority_is_the_same() {
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
    fn the_certificate_has_the_name_a_node_joined_with() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open(dir.path()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["another-node".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "another-node");
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let certificate = authority.sign_node("node-1", &request).unwrap();
        let der = pem::parse(certificate).unwrap();
        assert_eq!(node_of(der.contents()).as_deref(), Some("node-1"));
        assert!(authority.sign_node("node-1", "nonsense").is_err());
    }
}
