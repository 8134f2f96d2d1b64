//! `GET /docs`: the OpenAPI document for people, by a viewer that is part of gander and loads nothing from elsewhere.

use std::sync::{Arc, LazyLock};

use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa_swagger_ui::{Config, serve};

use super::problem::{Code, Problem};

/// The viewer may load its own files, ask this gateway, and nothing else; and no page may put a frame around it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// What the viewer consists of.
const FILES: [&str; 8] = [
    "index.html",
    "index.css",
    "swagger-ui.css",
    "swagger-ui-bundle.js",
    "swagger-ui-standalone-preset.js",
    "swagger-initializer.js",
    "favicon-16x16.png",
    "favicon-32x32.png",
];

/// Leads to the folder: the viewer's files are named relative to it, so that a proxy may serve gander below any path.
pub(super) async fn to_folder() -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, HeaderValue::from_static("docs/"))]).into_response()
}

/// The viewer's page.
pub(super) async fn index() -> Response {
    answer("index.html")
}

/// Another of its files.
pub(super) async fn file(Path(name): Path<String>) -> Response {
    answer(&name)
}

fn answer(name: &str) -> Response {
    static CONFIG: LazyLock<Arc<Config<'static>>> =
        LazyLock::new(|| Arc::new(Config::from("../openapi.json").try_it_out_enabled(true)));
    if !FILES.contains(&name) {
        return Problem::new(Code::NotFound, "there is nothing at this path").into_response();
    }
    match serve(name, Arc::clone(&CONFIG)) {
        Ok(Some(file)) => {
            let headers: [(HeaderName, HeaderValue); 2] =
                [(header::CONTENT_SECURITY_POLICY, POLICY), (header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF)];
            (headers, [(header::CONTENT_TYPE, file.content_type)], file.bytes.into_owned()).into_response()
        }
        Ok(None) => Problem::internal(format_args!("{name} is not among the viewer's files")).into_response(),
        Err(error) => Problem::internal(error).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt;

    use super::*;

    async fn text(response: Response<Body>) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn the_viewer_is_whole_shows_this_document_and_names_no_other_host() {
        for name in FILES {
            assert_eq!(answer(name).status(), StatusCode::OK, "{name}");
        }
        let page = text(index().await).await;
        let named = page.split(['"', '\'']).filter_map(|part| part.strip_prefix("./"));
        let strangers: Vec<_> = named.filter(|name| !FILES.contains(name)).collect();
        assert!(strangers.is_empty() && page.contains("./swagger-initializer.js"), "{strangers:?} {page}");
        assert!(!page.contains("//"), "{page}");
        assert!(text(answer("swagger-initializer.js")).await.contains("\"../openapi.json\""));
    }

    #[tokio::test]
    async fn there_is_nothing_else_in_the_folder() {
        for name in ["", "nothing.js", "../openapi.json", "oauth2-redirect.html"] {
            assert_eq!(answer(name).status(), StatusCode::NOT_FOUND, "{name:?}");
        }
    }
}
