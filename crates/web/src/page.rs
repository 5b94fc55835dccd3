//! The page people open in a browser: built from `ui/`, kept in this crate, and served with headers that let it load
//! nothing from elsewhere.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use ring::digest::{SHA256, digest};

use crate::problem;

/// A file of the page.
struct File {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const INDEX: File = File {
    path: "/",
    kind: "text/html; charset=utf-8",
    bytes: include_bytes!("../page/index.html"),
};

const FILES: [File; 3] = [
    File {
        path: "/app.js",
        kind: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../page/app.js"),
    },
    File {
        path: "/app.css",
        kind: "text/css; charset=utf-8",
        bytes: include_bytes!("../page/app.css"),
    },
    File {
        path: "/favicon.svg",
        kind: "image/svg+xml",
        bytes: include_bytes!("../page/favicon.svg"),
    },
];

/// Paths that are not the page's, so that a mistake in one of them is told as the API tells mistakes.
const NOT_OURS: [&str; 5] = ["/api", "/rest-server", "/metrics", "/healthz", "/readyz"];

/// Nothing from elsewhere, nothing written into the page itself, and not inside another page.
const POLICY: &str = "default-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'; \
                      base-uri 'none'; form-action 'self'; object-src 'none'";

/// A file of the page, or for the path of a screen the page itself.
pub(crate) async fn page(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let Some(file) = file_at(uri.path()) else {
        return problem::no_such_page().await.into_response();
    };
    if method != Method::GET && method != Method::HEAD {
        return problem::no_such_page().await.into_response();
    }
    let tag = tag(file);
    let is_known = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, file.kind)], file.bytes).into_response(),
    };
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    let head = response.headers_mut();
    for (name, value) in fixed {
        head.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        head.insert(header::ETAG, tag);
    }
    response
}

/// What is at a path: a file by its name, the page for every screen, nothing for what belongs to others.
fn file_at(path: &str) -> Option<&'static File> {
    let is_below = |start: &str| {
        let rest = path.strip_prefix(start);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if NOT_OURS.into_iter().any(is_below) {
        return None;
    }
    if let Some(file) = FILES.iter().find(|file| file.path == path) {
        return Some(file);
    }
    let last = path.rsplit('/').next().unwrap_or_default();
    (!last.contains('.')).then_some(&INDEX)
}

/// Changes when the file does.
fn tag(file: &File) -> String {
    let hash = digest(&SHA256, file.bytes);
    let hex: String = hash.as_ref()[..12].iter().map(|b| format!("{b:02x}")).collect();
    format!("\"{hex}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(at: &str) -> Option<&'static str> {
        file_at(at).map(|file| file.path)
    }

    #[test]
    fn screens_get_the_page_files_themselves_and_others_nothing() {
        for screen in ["/", "/jobs", "/jobs/17", "/vcs", "/apiary"] {
            assert_eq!(path(screen), Some("/"), "{screen}");
        }
        assert_eq!(path("/app.js"), Some("/app.js"));
        assert_eq!(path("/app.css"), Some("/app.css"));
        for other in [
            "/api",
            "/api/v1/nothing",
            "/rest-server/api/v2/info",
            "/metrics",
            "/x.php",
            "/../app.js.map",
        ] {
            assert_eq!(path(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn a_page_that_is_known_is_not_sent_again() {
        let first = page(Method::GET, Uri::from_static("/jobs"), HeaderMap::new()).await;
        assert_eq!(first.status(), StatusCode::OK);
        let policy = first.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self'"), "{policy}");
        let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone())]);
        let second = page(Method::GET, Uri::from_static("/jobs"), known).await;
        assert_eq!(second.status(), StatusCode::NOT_MODIFIED);
        let posted = page(Method::POST, Uri::from_static("/jobs"), HeaderMap::new()).await;
        assert_eq!(posted.status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        for file in FILES.iter().chain([&INDEX]) {
            let text = String::from_utf8_lossy(file.bytes);
            // The names of SVG and the like look like addresses and are none.
            for address in text.match_indices("://").map(|(at, _)| &text[at..]) {
                let host = address[3..].split('/').next().unwrap_or_default();
                assert_eq!(host, "www.w3.org", "{}", file.path);
            }
        }
        assert!(FILES.iter().map(|f| f.bytes.len()).sum::<usize>() < 250_000);
    }
}
