//! From a request's body to an object: content type, kind, shape, defaults.

use bytes::Bytes;
use mizzen_object::decode::{decode, type_meta};
use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, Kind, Status, Str, Value, Violations, default, json, proto, yaml};

use crate::catalog::Catalog;
use crate::request::Request;

/// What to do about fields that the schema does not know and fields that come twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The form of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyType {
    Json,
    Yaml,
    Protobuf,
}

const UNKNOWN_FORMAT: &str =
    "the body of the request was in an unknown format - accepted media types include: ";
const BODY_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The form of the body; JSON unless said.
pub(crate) fn body_type(request: &Request) -> Result<BodyType, Status> {
    let header = request.header("content-type");
    match header.split(';').next().unwrap_or_default().trim() {
        "" | "application/json" => Ok(BodyType::Json),
        "application/yaml" => Ok(BodyType::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(BodyType::Protobuf),
        _ => Err(unsupported(BODY_TYPES)),
    }
}

/// 415: nobody reads that.
pub(crate) fn unsupported(accepted: &str) -> Status {
    Status::failure(415, "UnsupportedMediaType", format!("{UNKNOWN_FORMAT}{accepted}"))
}

/// Reads the `fieldValidation` parameter into `violations` or a choice.
pub(crate) fn field_validation(request: &Request, violations: &mut Violations) -> FieldValidation {
    match request.query.text("fieldValidation") {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            violations.not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]);
            FieldValidation::Warn
        }
    }
}

/// An object as a client sent it, defaulted, with what to tell the client.
pub(crate) struct Intake {
    pub value: Value,
    pub warnings: Vec<String>,
}

/// Reads the body as an object of `kind`.
pub(crate) fn object(
    catalog: &Catalog,
    kind: &Kind,
    request: &Request,
    strictness: FieldValidation,
) -> Result<Intake, Status> {
    let form = body_type(request)?;
    let read = Reader { catalog, gvk: &kind.gvk, root: &kind.root, loose: kind.rules.loose }
        .read(form, &request.body)?;
    let mut intake = judge(read, strictness)
        .map_err(|complaints| cannot_handle(&kind.gvk, &kind.gvk, &strict_error(&complaints)))?;
    complete(kind, &mut intake.value).map_err(|problem| cannot_handle(&kind.gvk, &kind.gvk, &problem))?;
    request.record.sent(&kind.gvk, &kind.root, &intake.value);
    Ok(intake)
}

/// Reads the body as something that is no resource, such as a Scale.
pub(crate) fn other(
    catalog: &Catalog,
    gvk: &GroupVersionKind,
    root: &Struct,
    request: &Request,
    strictness: FieldValidation,
) -> Result<Intake, Status> {
    let form = body_type(request)?;
    let read = Reader { catalog, gvk, root, loose: false }.read(form, &request.body)?;
    let intake =
        judge(read, strictness).map_err(|complaints| cannot_handle(gvk, gvk, &strict_error(&complaints)))?;
    request.record.sent(gvk, root, &intake.value);
    Ok(intake)
}

/// Fills in what nobody has said; why that cannot be an object of the kind.
pub(crate) fn complete(kind: &Kind, value: &mut Value) -> Result<(), String> {
    kind.hooks.read(value)?;
    default::apply(&kind.root, value);
    kind.hooks.default(value);
    mizzen_object::schema::canonical(&kind.root, value);
    Ok(())
}

/// Refuses, warns of or forgets complaints.
pub(crate) fn judge(read: Read, strictness: FieldValidation) -> Result<Intake, Vec<String>> {
    match strictness {
        FieldValidation::Strict if !read.complaints.is_empty() => Err(read.complaints),
        FieldValidation::Warn => {
            let warnings = read.complaints.iter().flat_map(|complaint| as_warnings(complaint)).collect();
            Ok(Intake { value: read.value, warnings })
        }
        _ => Ok(Intake { value: read.value, warnings: Vec::new() }),
    }
}

/// YAML complains of everything at once, under a heading; a client is warned line by line.
fn as_warnings(complaint: &str) -> Vec<String> {
    match complaint.strip_prefix("yaml: unmarshal errors:\n") {
        Some(lines) => lines.lines().map(|line| line.trim().to_string()).collect(),
        None => vec![complaint.to_string()],
    }
}

/// The words for complaints that are errors.
pub(crate) fn strict_error(complaints: &[String]) -> String {
    format!("strict decoding error: {}", complaints.join(", "))
}

/// An object as read, and what is strange about it.
pub(crate) struct Read {
    pub value: Value,
    pub complaints: Vec<String>,
}

struct Reader<'a> {
    catalog: &'a Catalog,
    gvk: &'a GroupVersionKind,
    root: &'a Struct,
    /// Whether the object is a custom one, which may say what it likes about its kind for now.
    loose: bool,
}

impl Reader<'_> {
    fn read(&self, form: BodyType, body: &Bytes) -> Result<Read, Status> {
        match form {
            BodyType::Json => self.read_json(body, body, Vec::new()),
            BodyType::Yaml => {
                let read = yaml::read(body).map_err(|error| self.unrecognized(&error.to_string(), body))?;
                self.read_json(&read.to_json(), body, read.complaint.into_iter().collect())
            }
            BodyType::Protobuf => self.read_proto(body),
        }
    }

    fn read_json(&self, text: &[u8], body: &[u8], mut complaints: Vec<String>) -> Result<Read, Status> {
        let meta = type_meta(text).map_err(|problem| {
            self.unrecognized(&format!("couldn't get version/kind; json parse error: {problem}"), body)
        })?;
        let said = self.check_kind(&meta.api_version, &meta.kind, body)?;
        let decoded =
            decode(self.root, text).map_err(|error| cannot_handle(&said, self.gvk, &error.to_string()))?;
        complaints.extend(decoded.complaints);
        Ok(Read { value: decoded.value, complaints })
    }

    fn read_proto(&self, body: &[u8]) -> Result<Read, Status> {
        let unknown =
            proto::decode_object(body).map_err(|error| self.unrecognized(&error.to_string(), body))?;
        let said = self.check_kind(&unknown.api_version, &unknown.kind, body)?;
        let value = proto::decode_message(self.root, unknown.raw)
            .map_err(|error| cannot_handle(&said, self.gvk, &error.to_string()))?;
        Ok(Read { value, complaints: Vec::new() })
    }

    /// Whether the object says that it is of the expected kind; what it does not say is filled in.
    fn check_kind(&self, api_version: &str, kind: &str, body: &[u8]) -> Result<GroupVersionKind, Status> {
        let (group, version) = match api_version.split_once('/') {
            None => ("", api_version),
            Some((group, version)) if !version.contains('/') => (group, version),
            Some(_) => {
                let problem = format!("unexpected GroupVersion string: {api_version}");
                return Err(self.unrecognized(&problem, body));
            }
        };
        if self.loose {
            return self.check_loose(api_version, kind, body);
        }
        let mut said = GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() };
        if said.kind.is_empty() {
            said.kind = self.gvk.kind.clone();
        }
        if said.group.is_empty() && said.version.is_empty() {
            said.group = self.gvk.group.clone();
            said.version = self.gvk.version.clone();
        }
        self.accept_kind(&said)?;
        Ok(said)
    }

    /// Kubernetes: a custom object must say its kind, and its version must be that of the path; a wrong kind is a
    /// matter of validation.
    fn check_loose(&self, api_version: &str, kind: &str, body: &[u8]) -> Result<GroupVersionKind, Status> {
        if kind.is_empty() {
            let text = String::from_utf8_lossy(body);
            return Err(self.unrecognized(&format!("Object 'Kind' is missing in '{text}'"), body));
        }
        let expected = self.gvk.api_version();
        if api_version != expected {
            return Err(Status::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({expected})"
            )));
        }
        Ok(GroupVersionKind { kind: kind.into(), ..self.gvk.clone() })
    }

    fn accept_kind(&self, said: &GroupVersionKind) -> Result<(), Status> {
        if said == self.gvk {
            return Ok(());
        }
        let known = mizzen_kinds::was_served(said) || self.catalog.knows_kind(said);
        if known && said.kind == self.gvk.kind {
            let (said, expected) = (said.api_version(), self.gvk.api_version());
            return Err(Status::bad_request(format!(
                "the API version in the data ({said}) does not match the expected API version ({expected})"
            )));
        }
        Err(cannot_handle(said, self.gvk, &kind_problem(self.catalog, said, self.gvk)))
    }

    fn unrecognized(&self, problem: &str, body: &[u8]) -> Status {
        let (kind, summary) = (&self.gvk.kind, summary(body));
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {problem} ({summary})"
        ))
    }
}

/// Why an object that says it is one kind cannot be another.
pub(crate) fn kind_problem(
    catalog: &Catalog,
    said: &GroupVersionKind,
    expected: &GroupVersionKind,
) -> String {
    if mizzen_kinds::was_served(said) || catalog.knows_kind(said) {
        let package = internal_package(&expected.group);
        let GroupVersionKind { version, kind, .. } = said;
        return format!("converting ({version}.{kind}) to ({package}.{}): unknown conversion", expected.kind);
    }
    let (kind, version) = (json::quote(&said.kind), json::quote(&said.api_version()));
    format!(
        "no kind {kind} is registered for version {version} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    )
}

/// 400: the object cannot be what it should be.
pub(crate) fn cannot_handle(said: &GroupVersionKind, expected: &GroupVersionKind, problem: &str) -> Status {
    let (kind, version, expected) = (&said.kind, json::quote(&said.version), &expected.kind);
    Status::bad_request(format!("{kind} in version {version} cannot be handled as a {expected}: {problem}"))
}

/// The name of Go's package with a group's internal types: `core`, `rbac`.
fn internal_package(group: &str) -> Str {
    match group {
        "" => "core".into(),
        _ => group.split('.').next().unwrap_or_default().into(),
    }
}

/// The beginning of a body, for people.
fn summary(body: &[u8]) -> String {
    const LENGTH: usize = 30;
    let start = &body[..body.len().min(LENGTH)];
    let more = if body.len() > LENGTH { " ..." } else { "" };
    match body.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}
