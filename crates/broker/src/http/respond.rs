//! Paths, and what they answer.
use super::Site;
use crate::checks::{Check, Outcome};
use crate::metrics;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

pub(crate) type Reply = Response<Full<Bytes>>;

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PATHS: &str = "the paths are /livez /readyz /startupz (each takes ?verbose) and /metrics\n";
/// How long the checks may take: longer, and the data directory's file system does not answer.
const CHECKS: Duration = Duration::from_secs(2);

/// Answers a request. `permit` keeps the place of an answer that is large.
pub(super) async fn respond(
    site: &Site,
    request: Request<Incoming>,
    permit: &Mutex<Option<OwnedSemaphorePermit>>,
) -> Result<Reply, Infallible> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut reply = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "use GET or HEAD\n");
        reply
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(reply);
    }
    let query = request.uri().query().unwrap_or_default();
    let verbose = query
        .split('&')
        .any(|part| part.split('=').next() == Some("verbose"));
    Ok(match request.uri().path() {
        // The answer itself shows that the data plane is alive.
        "/livez" => probe("livez", &[], verbose),
        "/startupz" => probe("startupz", &[site.context.checks.startup()], verbose),
        "/readyz" => probe("readyz", &checks(site).await, verbose),
        "/metrics" => measured(site, permit).await,
        _ => reply(StatusCode::NOT_FOUND, TEXT, PATHS),
    })
}

/// 200 when no check failed, else 503. The text names every check that is not well; with `verbose` the others too.
fn probe(name: &str, checks: &[Check], verbose: bool) -> Reply {
    let fails = checks.iter().any(|check| check.outcome == Outcome::Failed);
    let mut text = String::new();
    for check in checks {
        let mark = match check.outcome {
            Outcome::Ok if !verbose => continue,
            Outcome::Ok => "[+]",
            Outcome::Warning => "[!]",
            Outcome::Failed => "[-]",
        };
        // Writing to a String does not fail.
        let _ = writeln!(text, "{mark} {}: {}", check.name, check.reason);
    }
    let (status, end) = if fails {
        (StatusCode::SERVICE_UNAVAILABLE, "failed")
    } else {
        (StatusCode::OK, "ok")
    };
    let _ = writeln!(text, "{name} {end}");
    reply(status, TEXT, text)
}

/// The checks, made where blocking is allowed.
async fn checks(site: &Site) -> Vec<Check> {
    let context = site.context.clone();
    let made = tokio::task::spawn_blocking(move || context.checks.checks());
    match tokio::time::timeout(CHECKS, made).await {
        Ok(Ok(checks)) => checks,
        Ok(Err(_)) => vec![Check {
            name: "checks",
            outcome: Outcome::Failed,
            reason: "they ended early: the broker is stopping".to_owned(),
        }],
        Err(_) => vec![Check {
            name: "data directory",
            outcome: Outcome::Failed,
            reason: format!(
                "its file system does not answer within {} s",
                CHECKS.as_secs()
            ),
        }],
    }
}

async fn measured(site: &Site, permit: &Mutex<Option<OwnedSemaphorePermit>>) -> Reply {
    let stopping = |_| {
        reply(
            StatusCode::SERVICE_UNAVAILABLE,
            TEXT,
            "the broker is stopping\n",
        )
    };
    let place = match site.renders.clone().acquire_owned().await {
        Ok(place) => place,
        Err(closed) => return stopping(closed.to_string()),
    };
    let (context, settings) = (site.context.clone(), site.settings);
    // The place goes along: a render whose client has gone still counts until it ends.
    let rendered = tokio::task::spawn_blocking(move || {
        (
            metrics::text(&context, settings.partitions, settings.groups),
            place,
        )
    });
    match rendered.await {
        Ok((text, place)) => {
            *permit.lock() = Some(place);
            reply(StatusCode::OK, OPEN_METRICS, text)
        }
        Err(ended) => stopping(ended.to_string()),
    }
}

/// An answer that no cache keeps.
pub(crate) fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
