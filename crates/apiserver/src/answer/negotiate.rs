//! Which form of an answer a client wants: the `Accept` header, as upstream reads it.

use http::HeaderMap;
use mizzen_object::Status;

use crate::request::Query;

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// What an answer shows of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// All of it.
    Whole,
    /// A table for people, in this version of `meta.k8s.io`.
    Table(&'static str),
    /// Its metadata, in this version of `meta.k8s.io`.
    Metadata(&'static str),
}

/// What the client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accept {
    pub encoding: Encoding,
    pub form: Form,
    pub pretty: bool,
    /// Whether metadata is asked for as that of a list.
    pub listed: bool,
    /// Whether the JSON is kept beside what is sent, for those who remember it.
    pub kept: bool,
}

impl Accept {
    /// What the server wants of itself.
    pub const JSON: Accept =
        Accept { encoding: Encoding::Json, form: Form::Whole, pretty: false, listed: false, kept: false };

    /// The same without a transformation, for what cannot be transformed.
    pub fn whole(self) -> Accept {
        Accept { form: Form::Whole, ..self }
    }
}

const ENCODINGS: [Encoding; 3] = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf];
const STREAMS: [&str; 2] =
    ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

/// What there is to choose from besides the text of an object and its metadata.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    /// Whether there are tables.
    pub tables: bool,
    /// Whether whole objects have a protobuf form; their metadata always has.
    pub protobuf: bool,
}

/// Chooses a form. `list` says that the path can also be watched, which shows in the refusal.
pub(crate) fn negotiate(headers: &HeaderMap, query: &Query, list: bool) -> Result<Accept, Status> {
    negotiate_among(headers, query, list, Offer { tables: true, protobuf: true })
}

/// The same where there is less to choose from.
pub(crate) fn negotiate_among(
    headers: &HeaderMap,
    query: &Query,
    list: bool,
    offer: Offer,
) -> Result<Accept, Status> {
    let header = &*crate::header::text(headers, http::header::ACCEPT);
    let pretty = query.bool("pretty").unwrap_or_else(|| by_a_person(headers));
    let default = Accept { pretty, ..Accept::JSON };
    if header.trim().is_empty() {
        return Ok(default);
    }
    if !header.split(',').any(|clause| is_offered(media_type(clause))) {
        return Err(nothing_offered(list));
    }
    let chosen = clauses(header).into_iter().find_map(|clause| choose(clause, default, offer));
    chosen.ok_or_else(not_acceptable)
}

/// Kubernetes: command-line tools and browsers get readable JSON without asking.
fn by_a_person(headers: &HeaderMap) -> bool {
    let agent = crate::header::text(headers, http::header::USER_AGENT);
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool))
}

fn media_type(clause: &str) -> &str {
    clause.split(';').next().unwrap_or_default().trim()
}

fn is_offered(media_type: &str) -> bool {
    media_type == "*/*" || ENCODINGS.iter().any(|encoding| encoding.media_type() == media_type)
}

/// The clauses of the header, the preferred ones first.
fn clauses(header: &str) -> Vec<&str> {
    let mut clauses: Vec<(f64, &str)> = header.split(',').map(|clause| (quality(clause), clause)).collect();
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    clauses.into_iter().map(|clause| clause.1).collect()
}

fn quality(clause: &str) -> f64 {
    let value = parameters(clause).find(|parameter| parameter.0 == "q").map(|parameter| parameter.1);
    value.and_then(|value| value.parse().ok()).unwrap_or(1.0)
}

fn parameters(clause: &str) -> impl Iterator<Item = (&str, &str)> {
    clause.split(';').skip(1).filter_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        Some((key.trim(), value.trim()))
    })
}

fn choose(clause: &str, default: Accept, offer: Offer) -> Option<Accept> {
    let mut accept = default;
    let wanted = media_type(clause);
    accept.encoding = match wanted {
        "*/*" | "application/*" => Encoding::Json,
        _ => ENCODINGS.into_iter().find(|encoding| encoding.media_type() == wanted)?,
    };
    let (mut kind, mut group, mut version) = ("", "", "");
    for (key, value) in parameters(clause) {
        match key {
            "as" => kind = value,
            "g" => group = value,
            "v" => version = value,
            "pretty" => accept.pretty = value == "1",
            "stream" if !matches!(value, "" | "watch") => return None,
            _ => {}
        }
    }
    accept.form = form(kind, group, version)?;
    accept.listed = kind == "PartialObjectMetadataList";
    // Tables have no protobuf.
    let possible = match accept.form {
        Form::Table(_) => offer.tables && accept.encoding != Encoding::Protobuf,
        Form::Metadata(_) => true,
        Form::Whole => offer.protobuf || accept.encoding != Encoding::Protobuf,
    };
    possible.then_some(accept)
}

fn form(kind: &str, group: &str, version: &str) -> Option<Form> {
    if kind.is_empty() && group.is_empty() && version.is_empty() {
        return Some(Form::Whole);
    }
    let version = match (group, version) {
        ("meta.k8s.io", "v1") => "v1",
        ("meta.k8s.io", "v1beta1") => "v1beta1",
        _ => return None,
    };
    match kind {
        "Table" => Some(Form::Table(version)),
        "PartialObjectMetadata" | "PartialObjectMetadataList" => Some(Form::Metadata(version)),
        _ => None,
    }
}

fn offered() -> String {
    ENCODINGS.map(Encoding::media_type).join(", ")
}

pub(crate) fn not_acceptable() -> Status {
    let message = format!("only the following media types are accepted: {}", offered());
    not_that(message)
}

/// Why an answer cannot have the form that was asked for.
pub(crate) fn not_that(message: String) -> Status {
    Status::failure(406, "NotAcceptable", message)
}

fn nothing_offered(list: bool) -> Status {
    let mut offers = offered();
    if list {
        offers = format!("{offers}, {}", STREAMS.join(", "));
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {offers}");
    Status { details: Some(Box::default()), ..Status::failure(406, "NotAcceptable", message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, expected: Option<(Encoding, Form)>) {
        let mut headers = HeaderMap::new();
        headers.insert("accept", header.parse().unwrap());
        let chosen = negotiate(&headers, &Query::default(), false).ok();
        assert_eq!(chosen.map(|accept| (accept.encoding, accept.form)), expected, "{header}");
    }

    #[test]
    fn the_best_clause_that_can_be_served_wins() {
        let json = Some((Encoding::Json, Form::Whole));
        check("*/*", json);
        check("text/html,application/json", json);
        check("application/json;as=Nope;v=v1;g=meta.k8s.io,application/json", json);
        check("application/json;as=Table;v=v1;g=meta.k8s.io", Some((Encoding::Json, Form::Table("v1"))));
        check(
            "application/json;q=0.1,application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io;q=0.9",
            Some((Encoding::Json, Form::Metadata("v1"))),
        );
        check("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json", json);
        check("application/json;as=Table;v=v2;g=meta.k8s.io", None);
        check("text/html", None);
    }

    #[test]
    fn who_has_no_table_gives_the_next_best() {
        let chosen = |header: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("accept", header.parse().unwrap());
            let offer = Offer { tables: false, protobuf: true };
            negotiate_among(&headers, &Query::default(), false, offer).map(|accept| accept.form)
        };
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(chosen(&format!("{table},application/json")).ok(), Some(Form::Whole));
        assert_eq!(chosen(table).unwrap_err().code, 406);
    }
}
