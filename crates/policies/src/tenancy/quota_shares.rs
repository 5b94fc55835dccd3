//! The shares of a quota, as users write them: `vision=8,speech=16+4,default=0`.

use std::collections::BTreeMap;
use std::fmt;

use dovetail_model::ids::IdVec;

use super::quota::Quota;
use crate::error::PolicyError;

/// The text that is expected after `quota:`.
pub(super) const EXPECTED: &str =
    "TENANT=GPUS or TENANT=GPUS+MOST_BORROWED for each tenant, such as quota:vision=8,speech=16+4,default=0";

/// The GPUs that one tenant may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaShare {
    /// GPUs guaranteed to it.
    pub guaranteed: u32,
    /// Most GPUs it may borrow beyond them.
    pub borrowed: u32,
}

impl QuotaShare {
    /// The share of a tenant that may use nothing.
    pub(super) const NOTHING: Self = Self {
        guaranteed: 0,
        borrowed: 0,
    };

    /// Parses `8`, or `8+4` for at most four borrowed GPUs.
    pub fn parse(text: &str) -> Option<Self> {
        let (guaranteed, borrowed) = match text.split_once('+') {
            Some((guaranteed, borrowed)) => (guaranteed, borrowed.trim().parse().ok()?),
            None => (text, u32::MAX),
        };
        Some(Self {
            guaranteed: guaranteed.trim().parse().ok()?,
            borrowed,
        })
    }
}

/// The shares of all tenants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuotaShares {
    /// The shares of tenants by name.
    pub named: BTreeMap<String, QuotaShare>,
    /// The share of each tenant that is not named.
    pub default: Option<QuotaShare>,
}

impl QuotaShares {
    /// Parses `vision=8,speech=16+4,default=0`.
    ///
    /// # Errors
    /// Names the invalid item, and what is expected.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let invalid = |value: &str| PolicyError::InvalidValue {
            kind: "tenancy",
            part: "quota".to_owned(),
            knob: "TENANT".to_owned(),
            value: value.to_owned(),
            expected: EXPECTED.to_owned(),
        };
        let mut shares = Self::default();
        for item in text.split(',') {
            let (name, share) = item.split_once('=').ok_or_else(|| invalid(item))?;
            let (name, share) = (
                name.trim(),
                QuotaShare::parse(share).ok_or_else(|| invalid(item))?,
            );
            let is_repeated = match name {
                "" => return Err(invalid(item)),
                "default" => shares.default.replace(share).is_some(),
                name => shares.named.insert(name.to_owned(), share).is_some(),
            };
            if is_repeated {
                return Err(invalid(item));
            }
        }
        Ok(shares)
    }

    /// Returns the tenancy for tenants with these names, in the order of their ids.
    ///
    /// # Errors
    /// Names the tenants that have no share.
    pub fn for_tenants(&self, tenants: &[String]) -> Result<Quota, PolicyError> {
        let mut shares = IdVec::default();
        let mut missing = Vec::new();
        for name in tenants {
            let share = self.named.get(name).or(self.default.as_ref());
            // Jobs without a tenant have one called `default`, which is listed even if no job has it.
            if share.is_none() && name != "default" {
                missing.push(name.clone());
            }
            shares.push(share.copied().unwrap_or(QuotaShare::NOTHING));
        }
        match missing.is_empty() {
            true => Ok(Quota::new(
                format!("quota:{self}"),
                shares,
                self.default.unwrap_or(QuotaShare::NOTHING),
            )),
            false => Err(PolicyError::NoShare { tenants: missing }),
        }
    }
}

impl fmt::Display for QuotaShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.named.iter().map(|(name, share)| (name.as_str(), share));
        let all = named.chain(self.default.iter().map(|share| ("default", share)));
        for (i, (name, share)) in all.enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{name}={}", share.guaranteed)?;
            if share.borrowed < u32::MAX {
                write!(f, "+{}", share.borrowed)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parsed_and_printed() {
        let shares = QuotaShares::parse("b=16 + 4, a=8,default=0+2").unwrap();
        assert_eq!(shares.to_string(), "a=8,b=16+4,default=0+2");
        assert_eq!(QuotaShares::parse(&shares.to_string()).unwrap(), shares);
        assert_eq!(
            shares.named["a"],
            QuotaShare {
                guaranteed: 8,
                borrowed: u32::MAX
            }
        );
        for invalid in ["a", "a=", "a=x", "a=1+", "=3", "a=1,a=2", "a=-1", ""] {
            let error = QuotaShares::parse(invalid).unwrap_err().to_string();
            assert!(error.contains("such as quota:vision=8"), "{invalid}: {error}");
        }
    }

    #[test]
    fn a_tenant_without_a_share_is_named() {
        let shares = QuotaShares::parse("a=8").unwrap();
        let names = ["a".to_owned(), "c".to_owned()];
        let error = shares.for_tenants(&names).unwrap_err().to_string();
        assert!(error.contains("missing share for tenant `c`"), "{error}");
        assert!(shares.for_tenants(&names[..1]).is_ok());
    }
}
