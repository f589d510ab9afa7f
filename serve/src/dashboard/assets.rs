//! The style sheet, the script and the icon. Their addresses change with their content, so browsers keep them.

use std::sync::LazyLock;

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tower_http::compression::CompressionLayer;

use crate::work::Shared;

/// A file that is compiled into the program, and its address below the base path.
pub(super) struct Asset {
    pub(super) path: String,
    media_type: &'static str,
    text: &'static str,
}

pub(super) static STYLE: LazyLock<Asset> = LazyLock::new(|| Asset {
    path: address("css", include_str!("../../assets/dashboard.css")),
    media_type: "text/css; charset=utf-8",
    text: include_str!("../../assets/dashboard.css"),
});

pub(super) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| Asset {
    path: address("js", include_str!("../../assets/dashboard.js")),
    media_type: "text/javascript; charset=utf-8",
    text: include_str!("../../assets/dashboard.js"),
});

pub(super) static ICON: LazyLock<Asset> = LazyLock::new(|| Asset {
    path: address("svg", include_str!("../../assets/icon.svg")),
    media_type: "image/svg+xml",
    text: include_str!("../../assets/icon.svg"),
});

fn address(kind: &str, text: &str) -> String {
    let hash = URL_SAFE_NO_PAD.encode(&Sha256::digest(text)[..9]);
    format!("/assets/{hash}.{kind}")
}

pub(super) fn routes() -> Router<Shared> {
    let mut router = Router::new();
    for asset in [&STYLE, &SCRIPT, &ICON] {
        let headers = [
            (CONTENT_TYPE, asset.media_type),
            (CACHE_CONTROL, "public, max-age=31536000, immutable"),
        ];
        let text = asset.text;
        router = router.route(&asset.path, get(async move || (headers, text)));
    }
    router.layer(CompressionLayer::new())
}
