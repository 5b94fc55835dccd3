//! Names that Kubernetes takes.

use rand::RngExt as _;

use super::Asked;

/// Room for a role, an index and what the Job controller adds: names of pods have at most 63 letters.
const LONGEST: usize = 40;
const LONGEST_JOB: usize = 52;

/// A name for the objects of a job: lower-case letters, digits and `-`.
pub fn object_name(job: &str) -> String {
    let name = plain(job);
    let name = match name.starts_with(|c: char| c.is_ascii_lowercase()) {
        true => name,
        // Names of services begin with a letter.
        false => format!("job-{name}"),
    };
    name[..name.len().min(LONGEST)].trim_matches('-').to_owned()
}

/// The same, with letters by which it is told from others of that name.
pub fn unique_name(job: &str) -> String {
    // Without vowels, so that no words come out.
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = rand::rng();
    let mut name = format!("{}-", object_name(job));
    for _ in 0..5 {
        name.push(char::from(LETTERS[random.random_range(0..LETTERS.len())]));
    }
    name
}

/// A role, as part of a name.
pub(super) fn role_name(role: &str) -> String {
    plain(role)
}

fn plain(text: &str) -> String {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let lower = text.to_ascii_lowercase();
    let name: String = lower.chars().map(|c| if fine(c) { c } else { '-' }).collect();
    name.trim_matches('-').to_owned()
}

/// Roles whose Jobs would have one name, or one that is too long.
pub(super) fn clashes(asked: &Asked<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (i, role) in asked.roles.iter().enumerate() {
        let name = asked.job_name(i);
        if name.len() > LONGEST_JOB {
            wrong.push(format!(
                "roles[{i}].name: {:?} makes the name {name:?}, which has {} letters; at most {LONGEST_JOB}, so use a shorter one",
                role.name,
                name.len()
            ));
        }
        if let Some(other) = (0..i).find(|other| asked.job_name(*other) == name) {
            wrong.push(format!(
                "roles[{i}].name: {:?} and {:?} are the same name on Kubernetes, which has only lower-case letters, digits and `-`",
                asked.roles[other].name, role.name
            ));
        }
    }
    wrong
}
