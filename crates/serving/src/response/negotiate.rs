//! Content negotiation: the `Accept` header, as upstream reads it.

use http::HeaderMap;
use mizzen_object::Status;

use mizzen_request::RequestQuery;

/// The encoding of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseEncoding {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Protobuf, as Kubernetes wraps it.
    Protobuf,
}

impl ResponseEncoding {
    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            ResponseEncoding::Json => "application/json",
            ResponseEncoding::Yaml => "application/yaml",
            ResponseEncoding::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// How an object is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseForm {
    /// The whole object.
    Whole,
    /// A `Table`, in this version of `meta.k8s.io`.
    Table(&'static str),
    /// `PartialObjectMetadata`, in this version of `meta.k8s.io`.
    Metadata(&'static str),
}

/// The negotiated form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accept {
    /// How it is written.
    pub encoding: ResponseEncoding,
    /// What of the object is shown.
    pub form: ResponseForm,
    /// Whether JSON is indented.
    pub pretty: bool,
    /// Whether `PartialObjectMetadataList` was requested.
    pub listed: bool,
    /// Whether the audit log needs the JSON of the response.
    pub audited: bool,
}

impl Accept {
    /// Compact JSON, for requests of the server itself.
    pub const JSON: Accept = Accept {
        encoding: ResponseEncoding::Json,
        form: ResponseForm::Whole,
        pretty: false,
        listed: false,
        audited: false,
    };

    /// The same without a transformation to a table or metadata.
    pub fn whole(self) -> Accept {
        Accept {
            form: ResponseForm::Whole,
            ..self
        }
    }
}

const ENCODINGS: [ResponseEncoding; 3] = [
    ResponseEncoding::Json,
    ResponseEncoding::Yaml,
    ResponseEncoding::Protobuf,
];
const STREAMS: [&str; 2] = [
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// What a path can be rendered as, besides JSON, YAML and metadata.
#[derive(Debug, Clone, Copy)]
pub struct ResponseOffer {
    /// Whether there are tables.
    pub tables: bool,
    /// Whether whole objects have a protobuf form; their metadata always has.
    pub protobuf: bool,
    /// Whether go-restful serves the path. Kubernetes: it checks the header first, with messages of its own, and does not
    /// know `application/*`. It serves neither custom resources nor groups.
    pub restful: bool,
}

/// Negotiates the form of an object or list. `list` says that the path can also be watched, which the error mentions.
pub fn negotiate_among(
    headers: &HeaderMap,
    query: &RequestQuery,
    list: bool,
    offer: ResponseOffer,
) -> Result<Accept, Status> {
    let header = &*mizzen_request::header::text(headers, http::header::ACCEPT);
    let default = Accept {
        pretty: is_pretty(headers, query),
        ..Accept::JSON
    };
    if header.trim().is_empty() {
        return Ok(default);
    }
    if offer.restful && !is_offered(header, &ENCODINGS.map(ResponseEncoding::media_type)) {
        return Err(no_offer_accepted(list));
    }
    let chosen = clauses(header)
        .iter()
        .find_map(|clause| choose(clause, default, offer));
    chosen.ok_or_else(not_acceptable)
}

/// Negotiates the form of a document that cannot be transformed: clauses with a transformation are ignored. `restful` is
/// that of [`ResponseOffer`].
pub fn negotiate_document(
    headers: &HeaderMap,
    query: &RequestQuery,
    restful: bool,
) -> Result<Accept, Status> {
    let header = &*mizzen_request::header::text(headers, http::header::ACCEPT);
    if restful
        && !header.is_empty()
        && !is_offered(header, &ENCODINGS.map(ResponseEncoding::media_type))
    {
        return Err(no_offer_accepted(false));
    }
    untransformed(headers, query).ok_or_else(not_acceptable)
}

/// The best clause without a transformation.
fn untransformed(headers: &HeaderMap, query: &RequestQuery) -> Option<Accept> {
    let header = &*mizzen_request::header::text(headers, http::header::ACCEPT);
    let default = Accept {
        pretty: is_pretty(headers, query),
        ..Accept::JSON
    };
    if header.is_empty() {
        return Some(default);
    }
    let offer = ResponseOffer {
        tables: false,
        protobuf: true,
        restful: false,
    };
    let choose = |clause: &AcceptClause| {
        choose(clause, default, offer).filter(|accept| accept.form == ResponseForm::Whole)
    };
    clauses(header).iter().find_map(choose)
}

/// The form of aggregated discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregatedDiscoveryAccept {
    /// The encoding.
    pub accept: Accept,
    /// Whether only what the server itself serves is requested: `profile=nopeer`.
    pub is_nopeer: bool,
}

/// The form of aggregated discovery, if a clause requests it. Kubernetes: other clauses are ignored, whatever their quality
/// (DiscoveryEndpointRestrictions in endpoints/discovery/aggregated/negotiation.go).
pub fn negotiate_aggregated_discovery(
    headers: &HeaderMap,
    query: &RequestQuery,
    restful: bool,
) -> Option<AggregatedDiscoveryAccept> {
    let header = &*mizzen_request::header::text(headers, http::header::ACCEPT);
    if restful && !is_offered(header, &ENCODINGS.map(ResponseEncoding::media_type)) {
        return None;
    }
    let default = Accept {
        pretty: is_pretty(headers, query),
        ..Accept::JSON
    };
    clauses(header).iter().find_map(|clause| {
        let (accept, target) = read_options(clause, default)?;
        // Kubernetes: `v2beta1` is no longer served.
        let is_discovery = target == ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2");
        is_discovery.then_some(AggregatedDiscoveryAccept {
            accept,
            is_nopeer: clause.parameter("profile") == "nopeer",
        })
    })
}

/// Checks that the client accepts one of a route's media types. Kubernetes: go-restful compares them case-sensitively and
/// ignores parameters.
pub fn negotiate_route(headers: &HeaderMap, produced: &[&str]) -> Result<(), Status> {
    let header = &*mizzen_request::header::text(headers, http::header::ACCEPT);
    match header.trim().is_empty() || is_offered(header, produced) {
        true => Ok(()),
        false => Err(restful_not_acceptable(&produced.join(", "))),
    }
}

/// The form of a Status: the best clause without a transformation. Kubernetes: without one, the Status is indented JSON,
/// whatever the client accepts (`WriteRawJSON` in handlers/responsewriters).
pub fn negotiate_status(headers: &HeaderMap, query: &RequestQuery) -> Accept {
    untransformed(headers, query).unwrap_or(Accept {
        pretty: true,
        ..Accept::JSON
    })
}

/// Whether JSON is indented. Kubernetes: by the `pretty` parameter (Go's strconv.ParseBool); without it, for command-line
/// tools and browsers.
fn is_pretty(headers: &HeaderMap, query: &RequestQuery) -> bool {
    match query.text("pretty") {
        "" => {
            let agent = mizzen_request::header::text(headers, http::header::USER_AGENT);
            let tools = ["curl", "Wget", "Mozilla/5.0"];
            tools.iter().any(|tool| agent.starts_with(tool))
        }
        text => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
}

/// Whether a clause of the header names one of the media types. Kubernetes: matchesAccept of go-restful's route.go.
fn is_offered(header: &str, media_types: &[&str]) -> bool {
    let named = header.split(',').map(|clause| {
        clause
            .split(';')
            .next()
            .unwrap_or_default()
            .trim_matches(' ')
    });
    named
        .into_iter()
        .any(|named| named == "*/*" || media_types.contains(&named))
}

/// A clause of the `Accept` header.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptClause<'a> {
    /// `application` of `application/json`.
    pub kind: &'a str,
    /// `json` of `application/json`.
    pub subkind: &'a str,
    quality: f64,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> AcceptClause<'a> {
    /// Parses a clause; `None` without a media type. Kubernetes: ParseAccept of goautoneg, which drops invalid parameters and
    /// reads an invalid quality as 0.
    fn parse(text: &'a str) -> Option<AcceptClause<'a>> {
        let (media_type, rest) = text.split_once(';').unwrap_or((text, ""));
        let (kind, subkind) = match media_type.trim_matches(' ').split_once('/') {
            Some((kind, subkind)) if !subkind.is_empty() => {
                (kind.trim_matches(' '), subkind.trim_matches(' '))
            }
            Some(("*", _)) => ("*", "*"),
            None if media_type.trim_matches(' ') == "*" => ("*", "*"),
            _ => return None,
        };
        let subkind = subkind.strip_suffix('/').unwrap_or(subkind);
        if subkind.contains('/') {
            return None;
        }
        let mut clause = AcceptClause {
            kind,
            subkind,
            quality: 1.0,
            parameters: Vec::new(),
        };
        for (name, value) in rest
            .split(';')
            .filter_map(|parameter| parameter.split_once('='))
        {
            let value = value.strip_suffix('=').unwrap_or(value);
            match name.trim_matches(' ') {
                _ if value.is_empty() || value.contains('=') => {}
                "q" => clause.quality = value.parse().unwrap_or(0.0),
                name => clause.parameters.push((name, value.trim_matches(' '))),
            }
        }
        Some(clause)
    }

    /// The value of a parameter; empty if it has none.
    pub fn parameter(&self, name: &str) -> &'a str {
        let mut parameters = self.parameters.iter();
        parameters
            .find(|(known, _)| *known == name)
            .map_or("", |(_, value)| value)
    }

    fn is_preferred_to(&self, other: &AcceptClause) -> bool {
        self.quality > other.quality
            || self.kind != "*" && other.kind == "*"
            || self.subkind != "*" && other.subkind == "*"
    }
}

/// The clauses of the header, by preference. Kubernetes: goautoneg's comparison is no total order, so the same insertion
/// sort is needed for the same result.
pub fn clauses(header: &str) -> Vec<AcceptClause<'_>> {
    let mut clauses: Vec<AcceptClause> =
        header.split(',').filter_map(AcceptClause::parse).collect();
    for end in 1..clauses.len() {
        let mut at = end;
        while at > 0 && clauses[at].is_preferred_to(&clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
    clauses
}

/// The form of a clause, and the kind, group and version of its transformation.
fn read_options<'a>(
    clause: &AcceptClause<'a>,
    default: Accept,
) -> Option<(Accept, (&'a str, &'a str, &'a str))> {
    let encoding = match (clause.kind, clause.subkind) {
        ("*", "*") | ("application", "*") => ResponseEncoding::Json,
        ("application", subkind) => ENCODINGS
            .into_iter()
            .find(|encoding| encoding.media_type().strip_prefix("application/") == Some(subkind))?,
        _ => return None,
    };
    let mut accept = Accept {
        encoding,
        ..default
    };
    let (mut kind, mut group, mut version) = ("", "", "");
    for (key, value) in &clause.parameters {
        match *key {
            "as" => kind = value,
            "g" => group = value,
            "v" => version = value,
            "pretty" => accept.pretty = *value == "1",
            // YAML cannot be streamed.
            "stream" if *value != "watch" || encoding == ResponseEncoding::Yaml => return None,
            "sv" => return None,
            _ => {}
        }
    }
    Some((accept, (kind, group, version)))
}

fn choose(clause: &AcceptClause, default: Accept, offer: ResponseOffer) -> Option<Accept> {
    let (mut accept, (kind, group, version)) = read_options(clause, default)?;
    accept.form = form(kind, group, version)?;
    accept.listed = kind == "PartialObjectMetadataList";
    // Tables have no protobuf encoding.
    let possible = match accept.form {
        ResponseForm::Table(_) => offer.tables && accept.encoding != ResponseEncoding::Protobuf,
        ResponseForm::Metadata(_) => true,
        ResponseForm::Whole => offer.protobuf || accept.encoding != ResponseEncoding::Protobuf,
    };
    possible.then_some(accept)
}

fn form(kind: &str, group: &str, version: &str) -> Option<ResponseForm> {
    if kind.is_empty() && group.is_empty() && version.is_empty() {
        return Some(ResponseForm::Whole);
    }
    let version = match (group, version) {
        ("meta.k8s.io", "v1") => "v1",
        ("meta.k8s.io", "v1beta1") => "v1beta1",
        _ => return None,
    };
    match kind {
        "Table" => Some(ResponseForm::Table(version)),
        "PartialObjectMetadata" | "PartialObjectMetadataList" => {
            Some(ResponseForm::Metadata(version))
        }
        _ => None,
    }
}

fn offered() -> String {
    ENCODINGS.map(ResponseEncoding::media_type).join(", ")
}

/// 406: the response cannot have any of the forms that the client accepts.
pub fn not_acceptable() -> Status {
    let message = format!("only the following media types are accepted: {}", offered());
    not_acceptable_because(message)
}

/// 406: watch events cannot be sent in the requested media type.
pub fn stream_not_acceptable() -> Status {
    not_acceptable_because(format!(
        "only the following media types are accepted: {}",
        STREAMS.join(", ")
    ))
}

/// 406, with a message.
pub fn not_acceptable_because(message: String) -> Status {
    Status::failure(406, "NotAcceptable", message)
}

fn no_offer_accepted(list: bool) -> Status {
    let mut offers = offered();
    if list {
        offers = format!("{offers}, {}", STREAMS.join(", "));
    }
    restful_not_acceptable(&offers)
}

/// 406. Kubernetes: go-restful's message.
fn restful_not_acceptable(offers: &str) -> Status {
    let message = format!("406: Not Acceptable\n\nAvailable representations: {offers}");
    Status {
        details: Some(Box::default()),
        ..Status::failure(406, "NotAcceptable", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, expected: Option<(ResponseEncoding, ResponseForm)>) {
        let mut headers = HeaderMap::new();
        headers.insert("accept", header.parse().unwrap());
        let offer = ResponseOffer {
            tables: true,
            protobuf: true,
            restful: true,
        };
        let chosen = negotiate_among(&headers, &RequestQuery::default(), false, offer).ok();
        assert_eq!(
            chosen.map(|accept| (accept.encoding, accept.form)),
            expected,
            "{header}"
        );
    }

    #[test]
    fn the_best_clause_that_can_be_served_wins() {
        let json = Some((ResponseEncoding::Json, ResponseForm::Whole));
        check("*/*", json);
        check("text/html,application/json", json);
        check(
            "application/json;as=Nope;v=v1;g=meta.k8s.io,application/json",
            json,
        );
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            Some((ResponseEncoding::Json, ResponseForm::Table("v1"))),
        );
        check(
            "application/json;q=0.1,application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io;q=0.9",
            Some((ResponseEncoding::Json, ResponseForm::Metadata("v1"))),
        );
        check(
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
            json,
        );
        check("application/json;as=Table;v=v2;g=meta.k8s.io", None);
        check("text/html", None);
    }

    #[test]
    fn a_more_specific_clause_comes_first() {
        let yaml = Some((ResponseEncoding::Yaml, ResponseForm::Whole));
        check("*/*,application/yaml", yaml);
        check("application/*,application/yaml", yaml);
        check("*/*;q=0.9,application/yaml;q=0.1", yaml);
        check("application/json;q=0.1,application/yaml;q=0.2", yaml);
        check("Application/JSON", None);
        check("application/json;q=abc,application/yaml;q=0.1", yaml);
    }

    #[test]
    fn a_clause_is_read_as_goautoneg_reads_it() {
        let read = |text| {
            AcceptClause::parse(text).map(|clause| (clause.kind, clause.subkind, clause.parameters))
        };
        assert_eq!(read(" application / json ;a = b ;c;d=;e=f=g;h=i="), {
            Some(("application", "json", vec![("a", "b"), ("h", "i")]))
        });
        for any in ["*", "*/", "*/*"] {
            assert_eq!(read(any), Some(("*", "*", vec![])), "{any}");
        }
        for nothing in ["", "application", "application/", "a/b/c", ";q=1"] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
        let quality = |text| AcceptClause::parse(text).unwrap().quality;
        assert_eq!(["*;q=0.5", "*;q= 0.5", "*"].map(quality), [0.5, 0.0, 1.0]);
    }

    #[test]
    fn aggregated_discovery_needs_a_clause_that_requests_it() {
        let chosen = |header: &str, restful| {
            let headers = HeaderMap::from_iter([(http::header::ACCEPT, header.parse().unwrap())]);
            negotiate_aggregated_discovery(&headers, &RequestQuery::default(), restful).map(
                |AggregatedDiscoveryAccept { accept, is_nopeer }| {
                    let is_requested = header.contains("profile=nopeer");
                    assert_eq!(is_nopeer, is_requested, "{header}");
                    accept.encoding
                },
            )
        };
        let of = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        for (header, expected) in [
            (
                format!("application/json;{of}"),
                Some(ResponseEncoding::Json),
            ),
            (
                format!("application/yaml;{of}"),
                Some(ResponseEncoding::Yaml),
            ),
            (
                format!("application/vnd.kubernetes.protobuf;{of}"),
                Some(ResponseEncoding::Protobuf),
            ),
            (format!("*/*;{of}"), Some(ResponseEncoding::Json)),
            (
                format!("application/json;{of};profile=nopeer;x=y"),
                Some(ResponseEncoding::Json),
            ),
            (
                format!("application/json;{of};profile=local"),
                Some(ResponseEncoding::Json),
            ),
            (
                format!("application/json,application/yaml;{of};q=0.1"),
                Some(ResponseEncoding::Yaml),
            ),
            (format!("application/yaml;{of};stream=watch"), None),
            (format!("text/html;{of}"), None),
            (
                format!("application/json;{of}").replace("v2", "v2beta1"),
                None,
            ),
            ("application/json;as=APIGroupDiscoveryList".into(), None),
            ("application/json".into(), None),
        ] {
            assert_eq!(chosen(&header, true), expected, "{header}");
        }
        let any = format!("application/*;{of}");
        assert_eq!(
            (chosen(&any, true), chosen(&any, false)),
            (None, Some(ResponseEncoding::Json))
        );
    }

    #[test]
    fn a_document_is_never_transformed() {
        let chosen = |header: &str| {
            let headers = HeaderMap::from_iter([(http::header::ACCEPT, header.parse().unwrap())]);
            let accept = negotiate_document(&headers, &RequestQuery::default(), true);
            accept
                .map(|accept| (accept.encoding, accept.form))
                .map_err(|status| status.code)
        };
        let (table, json) = (
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/json;q=0.1",
        );
        assert_eq!(
            chosen(&format!("{table},{json}")),
            Ok((ResponseEncoding::Json, ResponseForm::Whole))
        );
        assert_eq!(
            chosen(&table.replace("Table", "PartialObjectMetadata")),
            Err(406)
        );
        assert_eq!(
            chosen("application/vnd.kubernetes.protobuf"),
            Ok((ResponseEncoding::Protobuf, ResponseForm::Whole))
        );
    }

    #[test]
    fn a_status_has_the_best_form_without_a_transformation() {
        let chosen = |header: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("accept", header.parse().unwrap());
            let accept = negotiate_status(&headers, &RequestQuery::default());
            (accept.encoding, accept.pretty)
        };
        let metadata =
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(
            chosen(&format!("{metadata},application/yaml")),
            (ResponseEncoding::Yaml, false)
        );
        assert_eq!(chosen(metadata), (ResponseEncoding::Json, true));
        assert_eq!(chosen("text/plain"), (ResponseEncoding::Json, true));
        assert_eq!(chosen("application/json"), (ResponseEncoding::Json, false));
    }

    #[test]
    fn pretty_is_what_go_parses_as_true() {
        let pretty = |query: &str, agent: &str| {
            let headers =
                HeaderMap::from_iter([(http::header::USER_AGENT, agent.parse().unwrap())]);
            is_pretty(
                &headers,
                &RequestQuery::parse(&format!("/?{query}").parse().unwrap()),
            )
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
    fn without_tables_the_next_clause_is_chosen() {
        let chosen = |header: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("accept", header.parse().unwrap());
            let offer = ResponseOffer {
                tables: false,
                protobuf: true,
                restful: true,
            };
            negotiate_among(&headers, &RequestQuery::default(), false, offer)
                .map(|accept| accept.form)
        };
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(
            chosen(&format!("{table},application/json")).ok(),
            Some(ResponseForm::Whole)
        );
        assert_eq!(chosen(table).unwrap_err().code, 406);
    }
}
