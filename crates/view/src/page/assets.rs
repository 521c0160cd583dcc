//! The style sheet, the script and the icon: files of their own, so that the page needs no inline code.

use axum::Router;
use axum::http::header;
use axum::routing::get;

pub(super) const STYLE: &str = include_str!("assets/page.css");
pub(super) const SCRIPT: &str = include_str!("assets/page.js");
pub(super) const ICON: &str = include_str!("assets/icon.svg");

pub(super) fn router() -> Router {
    let asset = |kind: &'static str, text: &'static str| {
        // Asked for each time: a new version of the program comes with new ones.
        get(
            move || async move { ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text) },
        )
    };
    Router::new()
        .route("/assets/page.css", asset("text/css; charset=utf-8", STYLE))
        .route("/assets/page.js", asset("text/javascript; charset=utf-8", SCRIPT))
        .route("/assets/icon.svg", asset("image/svg+xml", ICON))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_comes_from_elsewhere() {
        for text in [STYLE, SCRIPT, ICON.trim_start_matches("<svg xmlns=\"http://www.w3.org/2000/svg\"")] {
            assert!(!text.contains("http:") && !text.contains("https:") && !text.contains("//cdn"), "{text}");
        }
        assert!(!STYLE.contains("@import") && !STYLE.replace("url(#hatch)", "").contains("url("));
        assert!(!SCRIPT.contains("eval(") && !SCRIPT.contains("new Function"));
    }
}
