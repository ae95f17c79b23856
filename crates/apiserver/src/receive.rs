//! Reads the body of a request, within limits, after the request has been authorized.

use bytes::{Bytes, BytesMut};
use http::{Method, header};
use http_body_util::BodyExt as _;
use mizzen_object::Status;
use mizzen_outgoing::Outgoing;

use crate::request::Request;

/// The largest request body, as upstream.
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;
/// In how many frames a body may arrive. A frame costs as much as a kilobyte, however small it is.
const MAX_FRAMES: usize = 65_536;

/// Reads the body of a request whose method has one. A slow body counts against the deadline of the request.
///
/// Invariant: a body is read only after the request has been authorized.
pub(crate) async fn receive(request: &mut Request) -> Result<(), Status> {
    let is_read = !matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS);
    // A proxied body is streamed.
    let is_proxied = request
        .info
        .resource()
        .is_some_and(|path| path.subresource == "proxy");
    if !is_read || is_proxied || request.headers.contains_key(header::UPGRADE) {
        return Ok(());
    }
    if let Some(arriving) = request.streams.take() {
        let content_length = request
            .headers
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if content_length.is_some_and(|length| length > MAX_BODY) {
            return Err(too_large());
        }
        request.body = read_all(arriving.body).await?;
    }
    Ok(())
}

/// The whole body, if it is not too large. A body of one frame is not copied; small frames are joined in one buffer.
async fn read_all(mut body: Outgoing) -> Result<Bytes, Status> {
    let (mut whole, mut joined, mut n_frames) = (Bytes::new(), BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Status::bad_request(format!("unable to read the request body: {error}"))
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        n_frames += 1;
        if n_frames > MAX_FRAMES || whole.len() + joined.len() + data.len() > MAX_BODY {
            return Err(too_large());
        }
        if whole.is_empty() && joined.is_empty() {
            whole = data;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut whole));
            joined.extend_from_slice(&data);
        }
    }
    Ok(if joined.is_empty() {
        whole
    } else {
        joined.freeze()
    })
}

fn too_large() -> Status {
    let message = format!("Request entity too large: limit is {MAX_BODY}");
    Status {
        details: Some(Box::default()),
        ..Status::failure(413, "RequestEntityTooLarge", message)
    }
}
