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
    /// Whether go-restful serves the path. Kubernetes: it looks at the header first, has words of its own, and does not
    /// know `application/*`; it serves neither custom resources nor groups.
    pub restful: bool,
}

/// Chooses a form. `list` says that the path can also be watched, which shows in the refusal.
pub(crate) fn negotiate(headers: &HeaderMap, query: &Query, list: bool) -> Result<Accept, Status> {
    negotiate_among(headers, query, list, Offer { tables: true, protobuf: true, restful: true })
}

/// The same where there is less to choose from.
pub(crate) fn negotiate_among(
    headers: &HeaderMap,
    query: &Query,
    list: bool,
    offer: Offer,
) -> Result<Accept, Status> {
    let header = &*crate::header::text(headers, http::header::ACCEPT);
    let default = Accept { pretty: is_pretty(headers, query), ..Accept::JSON };
    if header.trim().is_empty() {
        return Ok(default);
    }
    if offer.restful && !header.split(',').any(|clause| is_offered(media_type(clause))) {
        return Err(nothing_offered(list));
    }
    let chosen = clauses(header).into_iter().find_map(|clause| choose(clause, default, offer));
    chosen.ok_or_else(not_acceptable)
}

/// Checks that JSON will do, where there is nothing else.
pub(crate) fn negotiate_json(headers: &HeaderMap) -> Result<(), Status> {
    let header = &*crate::header::text(headers, http::header::ACCEPT);
    let json = Encoding::Json.media_type();
    let accepted = |clause| matches!(media_type(clause), "*/*") || media_type(clause) == json;
    match header.trim().is_empty() || header.split(',').any(accepted) {
        true => Ok(()),
        false => Err(none_of(json)),
    }
}

/// The form of a Status: the best clause that asks for no transformation. Kubernetes: where there is none, the Status
/// is written indented, whatever was asked for (`WriteRawJSON` in handlers/responsewriters).
pub(crate) fn negotiate_status(headers: &HeaderMap, query: &Query) -> Accept {
    let header = &*crate::header::text(headers, http::header::ACCEPT);
    let default = Accept { pretty: is_pretty(headers, query), ..Accept::JSON };
    if header.is_empty() {
        return default;
    }
    let offer = Offer { tables: false, protobuf: true, restful: false };
    let choose = |clause| choose(clause, default, offer).filter(|accept| accept.form == Form::Whole);
    clauses(header).into_iter().find_map(choose).unwrap_or(Accept { pretty: true, ..Accept::JSON })
}

/// Whether JSON is indented. Kubernetes: the parameter is one of Go's words for truth, or it is false.
fn is_pretty(headers: &HeaderMap, query: &Query) -> bool {
    match query.text("pretty") {
        "" => by_a_person(headers),
        text => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
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

/// The clauses of the header, the preferred ones first. Kubernetes: goautoneg's order says of some pairs that each comes
/// before the other, so that it takes its way of sorting to get its result.
fn clauses(header: &str) -> Vec<&str> {
    let mut clauses: Vec<&str> = header.split(',').collect();
    for end in 1..clauses.len() {
        let mut at = end;
        while at > 0 && is_preferred(clauses[at], clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
    clauses
}

fn is_preferred(one: &str, other: &str) -> bool {
    let any = |clause| {
        media_type(clause).split_once('/').map_or(("*", "*"), |(kind, sub)| (kind.trim(), sub.trim()))
    };
    let (one_type, other_type) = (any(one), any(other));
    quality(one) > quality(other)
        || one_type.0 != "*" && other_type.0 == "*"
        || one_type.1 != "*" && other_type.1 == "*"
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
            "sv" if !value.is_empty() => return None,
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

/// Why events cannot be written.
pub(crate) fn no_stream() -> Status {
    not_that(format!("only the following media types are accepted: {}", STREAMS.join(", ")))
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
    none_of(&offers)
}

/// Kubernetes: go-restful's words for an answer in none of the forms that a route has.
fn none_of(offers: &str) -> Status {
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
    fn a_clause_that_is_more_precise_comes_first() {
        let yaml = Some((Encoding::Yaml, Form::Whole));
        check("*/*,application/yaml", yaml);
        check("application/*,application/yaml", yaml);
        check("*/*;q=0.9,application/yaml;q=0.1", yaml);
        check("application/json;q=0.1,application/yaml;q=0.2", yaml);
        check("Application/JSON", None);
    }

    #[test]
    fn a_status_has_the_best_form_without_a_transformation() {
        let chosen = |header: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("accept", header.parse().unwrap());
            let accept = negotiate_status(&headers, &Query::default());
            (accept.encoding, accept.pretty)
        };
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(chosen(&format!("{metadata},application/yaml")), (Encoding::Yaml, false));
        assert_eq!(chosen(metadata), (Encoding::Json, true));
        assert_eq!(chosen("text/plain"), (Encoding::Json, true));
        assert_eq!(chosen("application/json"), (Encoding::Json, false));
    }

    #[test]
    fn readable_is_what_go_takes_for_true() {
        let pretty = |query: &str, agent: &str| {
            let headers = crate::request::headers(&[("user-agent", agent)]);
            is_pretty(&headers, &Query::parse(&format!("/?{query}").parse().unwrap()))
        };
        for (query, agent, expected) in [
            ("pretty=true", "", true),
            ("pretty=T", "", true),
            ("pretty=yes", "curl/8", false),
            ("pretty=", "curl/8", true),
            ("pretty=false", "curl/8", false),
            ("", "Wget", true),
            ("", "kubectl", false),
        ] {
            assert_eq!(pretty(query, agent), expected, "{query} {agent}");
        }
    }

    #[test]
    fn who_has_no_table_gives_the_next_best() {
        let chosen = |header: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("accept", header.parse().unwrap());
            let offer = Offer { tables: false, protobuf: true, restful: true };
            negotiate_among(&headers, &Query::default(), false, offer).map(|accept| accept.form)
        };
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(chosen(&format!("{table},application/json")).ok(), Some(Form::Whole));
        assert_eq!(chosen(table).unwrap_err().code, 406);
    }
}
