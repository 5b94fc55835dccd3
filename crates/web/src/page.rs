//! The web page: built from `ui/`, embedded in this crate, and served with headers that prevent it from loading anything
//! from other hosts.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use ring::digest::{SHA256, digest};

use crate::problem;

/// A file of the page.
struct Asset {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const INDEX: Asset = Asset {
    path: "/",
    kind: "text/html; charset=utf-8",
    bytes: include_bytes!("../page/index.html"),
};

const ASSETS: [Asset; 3] = [
    Asset {
        path: "/app.js",
        kind: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../page/app.js"),
    },
    Asset {
        path: "/app.css",
        kind: "text/css; charset=utf-8",
        bytes: include_bytes!("../page/app.css"),
    },
    Asset {
        path: "/favicon.svg",
        kind: "image/svg+xml",
        bytes: include_bytes!("../page/favicon.svg"),
    },
];

/// Paths that are not part of the page, so that errors below them are problem documents.
const OTHER_PATHS: [&str; 5] = ["/api", "/rest-server", "/metrics", "/healthz", "/readyz"];

/// Nothing from other hosts, no inline scripts, and no frames.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'; \
                      base-uri 'none'; form-action 'self'; object-src 'none'";

/// Serves a file of the page; paths of screens get the page itself.
pub(crate) async fn page(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let Some(asset) = asset_at(uri.path()) else {
        return problem::unknown_path().await.into_response();
    };
    if method != Method::GET && method != Method::HEAD {
        return problem::unknown_path().await.into_response();
    }
    let tag = etag(asset);
    let is_cached = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|cached| cached.as_bytes() == tag.as_bytes());
    let mut response = match is_cached {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, asset.kind)], asset.bytes).into_response(),
    };
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
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

/// Returns the file at a path: an asset by its name, or the page for every other path of the page.
fn asset_at(path: &str) -> Option<&'static Asset> {
    let is_below = |start: &str| {
        let rest = path.strip_prefix(start);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if OTHER_PATHS.into_iter().any(is_below) {
        return None;
    }
    if let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) {
        return Some(asset);
    }
    let last = path.rsplit('/').next().unwrap_or_default();
    (!last.contains('.')).then_some(&INDEX)
}

/// Returns the entity tag of a file, from its contents.
fn etag(asset: &Asset) -> String {
    let hash = digest(&SHA256, asset.bytes);
    let hex: String = hash.as_ref()[..12].iter().map(|b| format!("{b:02x}")).collect();
    format!("\"{hex}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(at: &str) -> Option<&'static str> {
        asset_at(at).map(|asset| asset.path)
    }

    #[test]
    fn screens_get_the_page_and_other_paths_nothing() {
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
    async fn a_cached_page_is_not_sent_again() {
        let first = page(Method::GET, Uri::from_static("/jobs"), HeaderMap::new()).await;
        assert_eq!(first.status(), StatusCode::OK);
        let policy = first.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self'"), "{policy}");
        let cached = HeaderMap::from_iter([(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone())]);
        let second = page(Method::GET, Uri::from_static("/jobs"), cached).await;
        assert_eq!(second.status(), StatusCode::NOT_MODIFIED);
        let posted = page(Method::POST, Uri::from_static("/jobs"), HeaderMap::new()).await;
        assert_eq!(posted.status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn the_page_loads_nothing_from_other_hosts() {
        for asset in ASSETS.iter().chain([&INDEX]) {
            let text = String::from_utf8_lossy(asset.bytes);
            // XML namespaces such as that of SVG look like URLs.
            for address in text.match_indices("://").map(|(at, _)| &text[at..]) {
                let host = address[3..].split('/').next().unwrap_or_default();
                assert_eq!(host, "www.w3.org", "{}", asset.path);
            }
        }
        assert!(ASSETS.iter().map(|a| a.bytes.len()).sum::<usize>() < 250_000);
    }
}
