//! Identities of API clients: keys and certificates of the lab's own authority.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::LabError;

/// Certificate authority that the API server trusts and that signed its own certificate.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A user with a client certificate.
#[derive(Clone)]
pub struct Identity {
    /// User name.
    pub user: String,
    /// Certificate in PEM.
    pub certificate: String,
    /// Private key in PEM.
    pub key: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.user)
    }
}

fn certificate_error(name: &str) -> impl Fn(rcgen::Error) -> LabError {
    let name = name.to_owned();
    move |e| LabError::Certificate {
        name: name.clone(),
        reason: e.to_string(),
    }
}

/// The attribute "organization" by object identifier. `rcgen` allows one value for each attribute, so a user with two groups
/// has one under each spelling.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

impl Authority {
    /// Creates an authority with a new key.
    ///
    /// # Errors
    /// If no key can be generated.
    pub fn new() -> Result<Self, LabError> {
        let key = new_key()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "kubelab");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let signed = params
            .self_signed(&key)
            .map_err(certificate_error("certificate of the authority"))?;
        Ok(Self {
            certificate: signed.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Returns its certificate in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Creates a certificate for servers on this machine.
    ///
    /// # Errors
    /// If it cannot be signed.
    pub fn server(&self) -> Result<Identity, LabError> {
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let params =
            CertificateParams::new(names.to_vec()).map_err(certificate_error("names of the server"))?;
        self.sign("kubelab-server", &[], params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Creates a certificate for a user in at most two groups.
    ///
    /// # Errors
    /// If there are more groups or it cannot be signed.
    pub fn user(&self, user: &str, groups: &[&str]) -> Result<Identity, LabError> {
        if groups.len() > 2 {
            return Err(LabError::Certificate {
                name: format!("certificate of {user}"),
                reason: format!("{} groups exceed the maximum of 2", groups.len()),
            });
        }
        self.sign(
            user,
            groups,
            CertificateParams::default(),
            ExtendedKeyUsagePurpose::ClientAuth,
        )
    }

    fn sign(
        &self,
        user: &str,
        groups: &[&str],
        mut params: CertificateParams,
        purpose: ExtendedKeyUsagePurpose,
    ) -> Result<Identity, LabError> {
        let spellings = [
            DnType::OrganizationName,
            DnType::CustomDnType(ORGANIZATION.to_vec()),
        ];
        params.distinguished_name = DistinguishedName::new();
        for (group, spelling) in groups.iter().zip(spellings) {
            params.distinguished_name.push(spelling, *group);
        }
        params.distinguished_name.push(DnType::CommonName, user);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let key = new_key()?;
        let signed = params
            .signed_by(&key, &self.issuer)
            .map_err(certificate_error(&format!("certificate of {user}")))?;
        Ok(Identity {
            user: user.to_owned(),
            certificate: signed.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// Generates a key. Tokens of service accounts are signed with one too, since they allow elliptic curves.
pub(crate) fn new_key() -> Result<KeyPair, LabError> {
    KeyPair::generate().map_err(certificate_error("new key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_at_most_two_groups() {
        let authority = Authority::new().unwrap();
        let both = authority.user("eve", &["blue", "green"]).unwrap();
        assert!(both.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(both.key.starts_with("-----BEGIN PRIVATE KEY-----"));
        let error = authority.user("eve", &["blue", "green", "red"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "certificate of eve: 3 groups exceed the maximum of 2"
        );
    }
}
