//! Quota files: the GPUs that each tenant is guaranteed.
//!
//! ```yaml
//! tenants:
//!   vision: 8                              # may borrow all idle GPUs
//!   speech: {guaranteed: 16, borrow: 4}    # at most four more
//! default: 0                               # every other tenant
//! ```

use std::path::Path;

use crate::error::TraceError;
use dovetail_yaml::{Entry, YamlError, parse as parse_yaml};

/// GPUs guaranteed to a tenant (or to every other one, under the name `default`), and the most it may borrow.
pub type TenantQuota = (String, u32, Option<u32>);

/// An invalid file of shares.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// The file is not readable.
    #[error(transparent)]
    File(#[from] TraceError),
    /// It is not YAML, or not of the right shape.
    #[error(transparent)]
    Yaml(#[from] YamlError),
}

/// Reads a file of shares.
///
/// # Errors
/// Names the file, the path in it and the error.
pub fn read_quota(path: &Path) -> Result<Vec<TenantQuota>, QuotaError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|reason| TraceError::Open {
        file: file.clone(),
        reason,
    })?;
    Ok(parse_quota(&text, &file)?)
}

/// Parses the shares in a text; `file` is its name in errors.
///
/// # Errors
/// Names the error and its path.
pub fn parse_quota(text: &str, file: &str) -> Result<Vec<TenantQuota>, YamlError> {
    let value = parse_yaml(text, file)?;
    let top = Entry::top(file, &value);
    let mut shares = Vec::new();
    for (key, entry) in top.entries(&["tenants", "default"])? {
        if key == "default" {
            shares.push(share("default", &entry)?);
            continue;
        }
        for (name, entry) in entry.all_entries()? {
            if name.is_empty() || name == "default" || name.contains([',', '=']) {
                return Err(entry.wrong(
                    "invalid tenant name: expected a name without `,` and `=`; `default` belongs next to `tenants`",
                ));
            }
            shares.push(share(name, &entry)?);
        }
    }
    match shares.is_empty() {
        false => Ok(shares),
        true => Err(top.wrong("no tenants: expected `tenants: {NAME: GPUS}`")),
    }
}

fn share(name: &str, entry: &Entry<'_>) -> Result<TenantQuota, YamlError> {
    const MAX_GPUS: u64 = 1 << 30;
    if let Ok(gpus) = entry.whole(0, MAX_GPUS) {
        return Ok((name.to_owned(), gpus as u32, None));
    }
    let Ok(parts) = entry.entries(&["guaranteed", "borrow"]) else {
        return Err(entry.expected("a number of GPUs, or {guaranteed: GPUS, borrow: GPUS}"));
    };
    let (mut guaranteed, mut borrow) = (None, None);
    for (key, part) in parts {
        let gpus = Some(part.whole(0, MAX_GPUS)? as u32);
        match key {
            "guaranteed" => guaranteed = gpus,
            _ => borrow = gpus,
        }
    }
    let Some(guaranteed) = guaranteed else {
        return Err(entry.wrong("missing key `guaranteed`"));
    };
    Ok((name.to_owned(), guaranteed, borrow))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_in_both_forms() {
        let text = "tenants: {vision: 8, speech: {guaranteed: 16, borrow: 4}}\ndefault: {guaranteed: 0}";
        let shares = parse_quota(text, "q.yaml").unwrap();
        let expected = [("default", 0, None), ("speech", 16, Some(4)), ("vision", 8, None)];
        assert_eq!(shares, expected.map(|(n, g, b)| (n.to_owned(), g, b)));
    }

    #[test]
    fn errors_name_the_key() {
        for (text, part) in [
            ("tenants: {a: many}", "a number of GPUs"),
            ("tenants: {a: {borrow: 4}}", "missing key `guaranteed`"),
            ("tenants: {a: {guaranteed: -1}}", "tenants.a.guaranteed"),
            ("tenants: {default: 4}", "invalid tenant name"),
            ("tenants: {}", "no tenants"),
            ("tenant: {a: 1}", "tenants"),
        ] {
            let error = parse_quota(text, "q.yaml").unwrap_err().to_string();
            assert!(
                error.contains(part) && error.contains("q.yaml"),
                "{text}: {error}"
            );
        }
    }
}
