//! Who speaks to the API server: keys and certificates of an authority that lives as long as the lab.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::LabError;

/// The authority that the API server believes, and that its own certificate is from.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A user by certificate: what it is called, and in which groups.
#[derive(Clone)]
pub struct Identity {
    /// The user's name.
    pub user: String,
    /// Certificate in PEM.
    pub certificate: String,
    /// Its private key in PEM.
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

fn bad(what: &str) -> impl Fn(rcgen::Error) -> LabError {
    let what = what.to_owned();
    move |e| LabError::Certificate {
        what: what.clone(),
        why: e.to_string(),
    }
}

/// The attribute "organization" spelled as a number: names here have one value for each attribute, and a user can be
/// in two groups.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new() -> Result<Self, LabError> {
        let key = new_key()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "kubelab");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let signed = params
            .self_signed(&key)
            .map_err(bad("the authority's certificate"))?;
        Ok(Self {
            certificate: signed.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Its certificate in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate for a server on this machine.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn server(&self) -> Result<Identity, LabError> {
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let params = CertificateParams::new(names.to_vec()).map_err(bad("the server's names"))?;
        self.sign("kubelab-server", &[], params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a user in at most two groups.
    ///
    /// # Errors
    /// When there are more groups, or it cannot be made.
    pub fn user(&self, user: &str, groups: &[&str]) -> Result<Identity, LabError> {
        if groups.len() > 2 {
            return Err(LabError::Certificate {
                what: format!("the certificate of {user}"),
                why: format!("{} groups, where two have room", groups.len()),
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
            .map_err(bad(&format!("the certificate of {user}")))?;
        Ok(Identity {
            user: user.to_owned(),
            certificate: signed.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// A new key; also for the tokens of service accounts, which may be signed with elliptic curves.
pub(crate) fn new_key() -> Result<KeyPair, LabError> {
    KeyPair::generate().map_err(bad("a new key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_in_two_groups_at_most() {
        let authority = Authority::new().unwrap();
        let both = authority.user("eve", &["blue", "green"]).unwrap();
        assert!(both.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(both.key.starts_with("-----BEGIN PRIVATE KEY-----"));
        let error = authority.user("eve", &["blue", "green", "red"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the certificate of eve: 3 groups, where two have room"
        );
    }
}
