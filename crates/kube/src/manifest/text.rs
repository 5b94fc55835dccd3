//! Escapes text in pods, where Kubernetes expands `$(NAME)` and `$$`, and inserts secrets.

use std::collections::BTreeMap;

use dovetail_cluster::JobRequest;

/// Returns the environment variables of secrets, by the name in the job file.
pub(super) fn variables(request: &JobRequest) -> BTreeMap<String, String> {
    let mut taken = std::collections::BTreeSet::new();
    let mut name_of = |name: &String| {
        let allowed = |c: char| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        };
        let plain: String = name.chars().map(allowed).collect();
        let mut variable = format!("SECRET_{plain}");
        while !taken.insert(variable.clone()) {
            variable.push('_');
        }
        (name.clone(), variable)
    };
    request.secrets.keys().map(&mut name_of).collect()
}

/// Escapes a text so that the container gets it as the user wrote it, with secrets inserted.
pub(super) fn escape(text: &str, secrets: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        out.push(character);
        if character == '$' && matches!(characters.peek(), Some('$' | '(')) {
            out.push('$');
        }
    }
    for (name, variable) in secrets {
        out = out.replace(&format!("<% $secrets.{name} %>"), &format!("$({variable})"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expands a text like the kubelet (`third_party/forked/golang/expansion`).
    fn expand(text: &str, known: &BTreeMap<&str, &str>) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            if let Some(more) = after.strip_prefix('$') {
                out.push('$');
                rest = more;
            } else if let Some((name, more)) = after.strip_prefix('(').and_then(|a| a.split_once(')')) {
                match known.get(name) {
                    Some(value) => out.push_str(value),
                    None => out.push_str(&format!("$({name})")),
                }
                rest = more;
            } else {
                out.push('$');
                rest = after;
            }
        }
        out + rest
    }

    #[test]
    fn a_container_gets_the_text_of_the_user() {
        let known: BTreeMap<&str, &str> = [("HOME", "/root"), ("SECRET_KEY", "p$$w$(x)")].into();
        let secrets = [("key".to_owned(), "SECRET_KEY".to_owned())].into();
        for text in [
            "echo $HOME $(HOME) ${HOME}",
            "kill $$",
            "$$$(HOME) $",
            "$$(date) $(",
            "100$",
        ] {
            assert_eq!(expand(&escape(text, &secrets), &known), text);
        }
        let text = escape("login <% $secrets.key %> $$", &secrets);
        assert_eq!(text, "login $(SECRET_KEY) $$$");
        assert_eq!(expand(&text, &known), "login p$$w$(x) $$");
    }

    #[test]
    fn each_secret_has_its_own_variable() {
        let request = JobRequest {
            secrets: [
                ("a.b".to_owned(), String::new()),
                ("a_b".to_owned(), String::new()),
            ]
            .into(),
            ..JobRequest::default()
        };
        let variables: Vec<String> = variables(&request).into_values().collect();
        assert_eq!(variables, ["SECRET_A_B", "SECRET_A_B_"]);
    }
}
