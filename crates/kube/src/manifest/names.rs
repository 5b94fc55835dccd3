//! Names of Kubernetes objects.

use rand::RngExt as _;

use super::{Context, ManifestError};

/// Maximum length of the name of a job: the names of its pods add a role, an index and a suffix, and have at most 63 characters.
const MAX_NAME: usize = 40;
/// Maximum length of the name of a Kubernetes Job.
const MAX_JOB_NAME: usize = 52;

/// Returns a name for the objects of a job, of lower-case letters, digits and `-`.
pub fn object_name(job: &str) -> String {
    let name = plain(job);
    let name = match name.starts_with(|c: char| c.is_ascii_lowercase()) {
        true => name,
        // Names of services must begin with a letter.
        false => format!("job-{name}"),
    };
    name[..name.len().min(MAX_NAME)].trim_matches('-').to_owned()
}

/// Returns the same name with a random suffix, which makes it unique.
pub fn unique_name(job: &str) -> String {
    // Without vowels, so that the suffix is not a word.
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = rand::rng();
    let mut name = format!("{}-", object_name(job));
    for _ in 0..5 {
        name.push(char::from(LETTERS[random.random_range(0..LETTERS.len())]));
    }
    name
}

/// Returns a role as part of a name.
pub(super) fn role_name(role: &str) -> String {
    plain(role)
}

fn plain(text: &str) -> String {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let lower = text.to_ascii_lowercase();
    let name: String = lower.chars().map(|c| if fine(c) { c } else { '-' }).collect();
    name.trim_matches('-').to_owned()
}

/// Returns errors for roles whose Jobs would have the same name, or one that is too long.
pub(super) fn check_names(cx: &Context<'_>) -> Vec<ManifestError> {
    let mut errors = Vec::new();
    for (i, role) in cx.roles.iter().enumerate() {
        let name = cx.job_name(i);
        if let Some(other) = (0..i).find(|other| cx.job_name(*other) == name) {
            errors.push(ManifestError::SameName {
                role: i,
                first: cx.roles[other].name.clone(),
                second: role.name.clone(),
            });
        }
        if name.len() > MAX_JOB_NAME {
            errors.push(ManifestError::NameTooLong {
                role: i,
                name,
                max: MAX_JOB_NAME,
            });
        }
    }
    errors
}
