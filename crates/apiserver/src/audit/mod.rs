//! Audits the requests of the server: `mizzen-audit` has policies, events and sinks.

mod capture;

use std::sync::Arc;

use mizzen_audit::{AuditRecord, AuditedRequest, AuditedResponse};
use mizzen_authorization::escape_html;
use mizzen_serving::MetaSchemas;
use mizzen_value::json;
use tokio::time::Instant;

use crate::request::Request;
use crate::response::{self, Body, Response};
use crate::server::ServerParts;

/// Starts the record of a request that arrived at `started`, and emits RequestReceived. `known`
/// says whether the request is authenticated. The response is for a request that must be rejected
/// because its event could not be stored.
pub(crate) async fn begin_record(
    server: &Arc<ServerParts>,
    request: &mut Request,
    known: bool,
    started: Instant,
) -> Option<Response> {
    let audited = AuditedRequest {
        user: &request.user,
        info: &request.info,
        query: &request.query,
        headers: &request.headers,
        uri: &request.uri,
        address: request.address,
    };
    match AuditRecord::begin(&server.audit, &audited, known, started).await {
        Ok(record) => {
            request.record = record;
            None
        }
        Err(error) => {
            let uri = json::quote(&request.uri.to_string());
            let text = escape_html(&format!("Internal Server Error: {uri}: {error}"));
            Some(response::text(500, format!("{text}\n")))
        }
    }
}

/// Records a response. A stream holds the record until it ends.
pub(crate) async fn record_response(
    record: &AuditRecord,
    types: &MetaSchemas,
    mut answer: Response,
) -> Response {
    if !record.is_open() {
        return answer;
    }
    let status = capture::response_status(types, &answer);
    let object = record
        .wants_response()
        .then(|| capture::response_object(&mut answer, record.omits_managed_fields()))
        .flatten();
    let (code, is_stream) = (answer.status().as_u16(), answer.body().is_stream());
    let response = AuditedResponse {
        code,
        status,
        object,
        is_lasting: is_stream || code == 101,
    };
    record.record_response(response).await;
    match is_stream {
        true => answer.map(|body| Body::held(body, record.clone())),
        false => answer,
    }
}
