//! From a request's body to an object: content type, kind, shape, defaults.

use std::borrow::Cow;

use mizzen_object::decode::{DecodeError, Decoded, TypeMeta, decode, type_meta};
use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, Kind, Status, Violations, default, proto};
use mizzen_value::{Str, Value, json, yaml};

use crate::catalog::{Catalog, is_meta_kind};
use crate::request::Request;
use crate::verbs::Call;

/// What to do about fields that the schema does not know and fields that come twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and warn the client.
    Warn,
    /// Reject the object.
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
    let (media_type, parameters) = header.split_once(';').unwrap_or((&header, ""));
    match media_type.trim().to_ascii_lowercase().as_str() {
        _ if !are_parameters(parameters) => Err(unsupported(BODY_TYPES)),
        "" if header.is_empty() => Ok(BodyType::Json),
        "application/json" => Ok(BodyType::Json),
        "application/yaml" => Ok(BodyType::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(BodyType::Protobuf),
        _ => Err(unsupported(BODY_TYPES)),
    }
}

/// Whether Go reads the parameters of a media type: `name=value`, each name once (mime.ParseMediaType).
fn are_parameters(text: &str) -> bool {
    let is_token = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte);
        !text.is_empty() && text.bytes().all(fits)
    };
    let mut names = Vec::new();
    let mut parameters = text.split(';').map(str::trim).peekable();
    while let Some(parameter) = parameters.next() {
        if parameter.is_empty() && parameters.peek().is_none() {
            return true;
        }
        let Some((name, value)) = parameter.split_once('=') else {
            return false;
        };
        let name = name.to_ascii_lowercase();
        let quoted = value.len() >= 2 && value.starts_with('"') && value.ends_with('"');
        if !is_token(&name) || !(is_token(value) || quoted) || names.contains(&name) {
            return false;
        }
        names.push(name);
    }
    true
}

/// 415: nobody reads that.
pub(crate) fn unsupported(accepted: &str) -> Status {
    Status::failure(
        415,
        "UnsupportedMediaType",
        format!("{UNKNOWN_FORMAT}{accepted}"),
    )
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

/// Reads the body as an object of `kind`. Warnings reach the client, whatever becomes of the request.
pub fn object(call: &Call, kind: &Kind, strictness: FieldValidation) -> Result<Value, Status> {
    let Call {
        server,
        request,
        notes,
        ..
    } = call;
    let form = body_type(request)?;
    let (gvk, loose) = (&kind.gvk, kind.rules.loose);
    let reader = Reader {
        catalog: &server.catalog,
        gvk,
        also: None,
        root: &kind.root,
        strictness,
    };
    let read = if loose {
        reader.read_loose(form, &request.body)
    } else {
        reader.read(form, &request.body)
    }?;
    let said = if loose {
        stated_kind(&read.value)
    } else {
        gvk.clone()
    };
    // Kubernetes: what is read with complaints is what it says, in these words, too.
    let intake = judge(read, strictness)
        .map_err(|complaints| cannot_handle(&said, &said, &strict_error(&complaints)))?;
    notes.warn_all(intake.warnings);
    if (&said.group, &said.version) != (&gvk.group, &gvk.version) {
        return Err(other_version(&said, gvk));
    }
    let mut value = intake.value;
    complete(kind, &mut value).map_err(|problem| cannot_handle(gvk, gvk, &problem))?;
    request.record.sent(gvk, &kind.root, &value);
    Ok(value)
}

/// Reads the body as something that is no resource, such as a Scale; `also` is a second version that is accepted.
pub fn other(
    call: &Call,
    gvk: &GroupVersionKind,
    also: Option<&GroupVersionKind>,
    root: &Struct,
    strictness: FieldValidation,
) -> Result<Value, Status> {
    let Call {
        server,
        request,
        notes,
        ..
    } = call;
    let form = body_type(request)?;
    let reader = Reader {
        catalog: &server.catalog,
        gvk,
        also,
        root,
        strictness,
    };
    let read = reader.read(form, &request.body)?;
    let intake = judge(read, strictness)
        .map_err(|complaints| cannot_handle(gvk, gvk, &strict_error(&complaints)))?;
    notes.warn_all(intake.warnings);
    request.record.sent(gvk, root, &intake.value);
    Ok(intake.value)
}

/// What an object says it is.
fn stated_kind(object: &Value) -> GroupVersionKind {
    let api_version = object["apiVersion"].str();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: object["kind"].str().into(),
    }
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
            let warnings = read
                .complaints
                .iter()
                .flat_map(|complaint| as_warnings(complaint))
                .collect();
            Ok(Intake {
                value: read.value,
                warnings,
            })
        }
        _ => Ok(Intake {
            value: read.value,
            warnings: Vec::new(),
        }),
    }
}

/// YAML complains of everything at once, under a heading; a client is warned line by line.
pub(crate) fn as_warnings(complaint: &str) -> Vec<String> {
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

/// A body whose kind is known, and nothing else of it yet.
pub(crate) struct Document<'a> {
    stated: TypeMeta,
    content: Content<'a>,
    /// What YAML found strange.
    complaint: Option<String>,
    body: &'a [u8],
}

enum Content<'a> {
    Json(Cow<'a, [u8]>),
    Protobuf(&'a [u8]),
}

/// The errors are upstream's decoders', without the words that a verb puts around them.
impl<'a> Document<'a> {
    pub(crate) fn open(form: BodyType, body: &'a [u8]) -> Result<Document<'a>, String> {
        let (text, complaint) = match form {
            BodyType::Json => (Cow::Borrowed(body), None),
            BodyType::Yaml => {
                let read = yaml::read(body).map_err(|error| error.to_string())?;
                (Cow::Owned(read.to_json()), read.complaint)
            }
            BodyType::Protobuf => return Document::open_protobuf(body),
        };
        let stated = type_meta(&text)
            .map_err(|problem| format!("couldn't get version/kind; json parse error: {problem}"))?;
        if stated.api_version.matches('/').count() > 1 {
            return Err(format!(
                "unexpected GroupVersion string: {}",
                stated.api_version
            ));
        }
        Ok(Document {
            stated,
            content: Content::Json(text),
            complaint,
            body,
        })
    }

    fn open_protobuf(body: &'a [u8]) -> Result<Document<'a>, String> {
        let unknown = proto::decode_object(body).map_err(|error| error.to_string())?;
        let mut stated = TypeMeta {
            api_version: unknown.api_version.as_str().into(),
            kind: unknown.kind.as_str().into(),
        };
        // Kubernetes: a version that cannot be parsed counts as none here (schema.FromAPIVersionAndKind).
        if stated.api_version.matches('/').count() > 1 {
            stated.api_version = Str::default();
        }
        Ok(Document {
            stated,
            content: Content::Protobuf(unknown.raw),
            complaint: None,
            body,
        })
    }

    /// Whether the body states its kind.
    pub(crate) fn states_kind(&self) -> bool {
        !self.stated.kind.is_empty()
    }

    /// The kind of the body; what it does not state is that of `default`.
    pub(crate) fn gvk(&self, default: &GroupVersionKind) -> Result<GroupVersionKind, String> {
        let gvk = self.gvk_unchecked(default);
        if gvk.version.is_empty() {
            let text = String::from_utf8_lossy(self.body);
            return Err(format!("Object 'apiVersion' is missing in '{text}'"));
        }
        Ok(gvk)
    }

    fn gvk_unchecked(&self, default: &GroupVersionKind) -> GroupVersionKind {
        let TypeMeta { api_version, kind } = &self.stated;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = if kind.is_empty() {
            default.kind.clone()
        } else {
            kind.clone()
        };
        let any_group = matches!(self.content, Content::Protobuf(_)) || group.is_empty();
        if version.is_empty() && (any_group || group == default.group) {
            return GroupVersionKind {
                kind,
                ..default.clone()
            };
        }
        GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind,
        }
    }

    pub(crate) fn decode(self, root: &Struct) -> Result<Read, DecodeError> {
        match self.content {
            Content::Json(text) => {
                let decoded = decode(root, &text)?;
                let complaints = self
                    .complaint
                    .into_iter()
                    .chain(decoded.complaints)
                    .collect();
                Ok(Read {
                    value: decoded.value,
                    complaints,
                })
            }
            Content::Protobuf(message) => {
                let value = proto::decode_message(root, message)
                    .map_err(|error| DecodeError::Type(error.to_string()))?;
                Ok(Read {
                    value,
                    complaints: Vec::new(),
                })
            }
        }
    }
}

struct Reader<'a> {
    catalog: &'a Catalog,
    gvk: &'a GroupVersionKind,
    also: Option<&'a GroupVersionKind>,
    root: &'a Struct,
    strictness: FieldValidation,
}

impl Reader<'_> {
    /// What most bodies are: JSON of the expected kind without anything strange. One scan reads it; what it declines is
    /// read again, step by step, for the words of the refusal.
    fn read_usual(&self, form: BodyType, body: &[u8]) -> Option<Read> {
        if form != BodyType::Json {
            return None;
        }
        let Decoded { value, complaints } = decode(self.root, body).ok()?;
        let is_expected = |field: &str, expected: &str| {
            let stated = value[field].str();
            stated == expected || stated.is_empty() && self.root.rest().is_none()
        };
        // Go finds these two in any letters; then nothing is usual.
        let is_odd = |name: &str| {
            let known = ["kind", "apiVersion"];
            known
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known) && name != *known)
        };
        let is_usual = complaints.is_empty()
            && is_expected("kind", &self.gvk.kind)
            && is_expected("apiVersion", &self.gvk.api_version())
            && !value.entries().any(|(name, _)| is_odd(name));
        is_usual.then_some(Read { value, complaints })
    }

    fn read(&self, form: BodyType, body: &[u8]) -> Result<Read, Status> {
        if let Some(read) = self.read_usual(form, body) {
            return Ok(read);
        }
        let document =
            Document::open(form, body).map_err(|problem| self.unrecognized(&problem, body))?;
        let said = self.check_kind(&document)?;
        document
            .decode(self.root)
            .map_err(|error| cannot_handle(&said, self.gvk, &error.to_string()))
    }

    /// Kubernetes: a custom object is a map before anything else is known of it. It must say its kind; whether that is
    /// the right one is a matter of validation (serializer/json, unstructuredSchemaCoercer).
    fn read_loose(&self, form: BodyType, body: &[u8]) -> Result<Read, Status> {
        if let Some(read) = self.read_usual(form, body) {
            return Ok(read);
        }
        let document =
            Document::open(form, body).map_err(|problem| self.unrecognized(&problem, body))?;
        let interpreted = document.gvk_unchecked(self.gvk);
        document.decode(self.root).map_err(|error| match error {
            DecodeError::NoKind(_) => {
                let problem = format!(
                    "Object 'Kind' is missing in '{}'",
                    String::from_utf8_lossy(body)
                );
                // Kubernetes: a strict decoder forgets the kind that it was to assume.
                match self.strictness {
                    FieldValidation::Ignore => cannot_handle(&interpreted, self.gvk, &problem),
                    _ => self.unrecognized(&problem, body),
                }
            }
            DecodeError::Shape { object, problem } => {
                cannot_handle(&stated_kind(&object), self.gvk, &problem)
            }
            error => cannot_handle(&interpreted, self.gvk, &error.to_string()),
        })
    }

    /// Whether the object says that it is of the expected kind; what it does not say is filled in.
    fn check_kind(&self, document: &Document) -> Result<GroupVersionKind, Status> {
        let said = document.gvk(self.gvk).map_err(|problem| {
            cannot_handle(&document.gvk_unchecked(self.gvk), self.gvk, &problem)
        })?;
        self.accept_kind(&said)?;
        Ok(said)
    }

    fn accept_kind(&self, said: &GroupVersionKind) -> Result<(), Status> {
        if said == self.gvk || Some(said) == self.also {
            return Ok(());
        }
        if said.kind == self.gvk.kind && is_known(self.catalog, said, self.gvk) {
            return Err(other_version(said, self.gvk));
        }
        Err(cannot_handle(
            said,
            self.gvk,
            &kind_problem(self.catalog, said, self.gvk),
        ))
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
    if is_known(catalog, said, expected) {
        let package = internal_package(&expected.group);
        let kind = &said.kind;
        let version = if is_meta_kind(kind) {
            "v1"
        } else {
            &said.version
        };
        return format!(
            "converting ({version}.{kind}) to ({package}.{}): unknown conversion",
            expected.kind
        );
    }
    let (kind, version) = (json::quote(&said.kind), json::quote(&said.api_version()));
    format!(
        "no kind {kind} is registered for version {version} in scheme {}",
        json::quote(scheme(&expected.group))
    )
}

/// Where upstream makes the scheme that has a group. Three servers are behind one address: those of definitions and of
/// API services know nothing but their own group.
fn scheme(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "pkg/apiserver/apiserver.go:55",
        "apiregistration.k8s.io" => "pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// Whether the scheme of an expected kind has another one, too.
fn is_known(catalog: &Catalog, said: &GroupVersionKind, expected: &GroupVersionKind) -> bool {
    let known = catalog.knows_kind(said);
    // Kinds such as Status are in the version `v1` of every scheme.
    let is_everywhere = is_meta_kind(&said.kind) && said.api_version() == "v1";
    known && (is_everywhere || scheme(&said.group) == scheme(&expected.group))
}

/// 400: the object is of another version.
fn other_version(said: &GroupVersionKind, expected: &GroupVersionKind) -> Status {
    let (said, expected) = (said.api_version(), expected.api_version());
    Status::bad_request(format!(
        "the API version in the data ({said}) does not match the expected API version ({expected})"
    ))
}

/// 400: the object cannot be what it should be.
pub(crate) fn cannot_handle(
    said: &GroupVersionKind,
    expected: &GroupVersionKind,
    problem: &str,
) -> Status {
    let (kind, version, expected) = (&said.kind, json::quote(&said.version), &expected.kind);
    Status::bad_request(format!(
        "{kind} in version {version} cannot be handled as a {expected}: {problem}"
    ))
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
