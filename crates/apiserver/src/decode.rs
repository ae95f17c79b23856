//! Decodes the body of a request into an object: content type, kind, strict decoding, defaults.

use std::borrow::Cow;

use mizzen_object::decode::{DecodeError, Decoded, TypeMeta, decode, decode_value, type_meta};
use mizzen_object::schema::{CanonicalObject, Struct};
use mizzen_object::{GroupVersionKind, Kind, Status, Violations, default, proto};
use mizzen_value::{Str, Value, json, yaml};

use crate::catalog::{Catalog, is_meta_kind};
use crate::request::Request;
use crate::verbs::ResourceCall;

/// What to do about unknown and duplicate fields (`fieldValidation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and warn the client.
    Warn,
    /// Reject the object.
    Strict,
}

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyType {
    Json,
    Yaml,
    Protobuf,
}

const UNKNOWN_FORMAT: &str =
    "the body of the request was in an unknown format - accepted media types include: ";
const BODY_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The encoding of the body by its content type; JSON without one.
pub(crate) fn body_type(request: &Request) -> Result<BodyType, Status> {
    let header = request.header("content-type");
    let (media_type, parameters) = header.split_once(';').unwrap_or((&header, ""));
    match media_type.trim().to_ascii_lowercase().as_str() {
        _ if !has_valid_parameters(parameters) => Err(unsupported(BODY_TYPES)),
        "" if header.is_empty() => Ok(BodyType::Json),
        "application/json" => Ok(BodyType::Json),
        "application/yaml" => Ok(BodyType::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(BodyType::Protobuf),
        _ => Err(unsupported(BODY_TYPES)),
    }
}

/// Whether Go accepts the parameters of a media type: `name=value`, each name once (mime.ParseMediaType).
fn has_valid_parameters(text: &str) -> bool {
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

/// 415: the server does not read this media type.
pub(crate) fn unsupported(accepted: &str) -> Status {
    Status::failure(
        415,
        "UnsupportedMediaType",
        format!("{UNKNOWN_FORMAT}{accepted}"),
    )
}

/// Reads the `fieldValidation` parameter.
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

/// A decoded object and the warnings for the client.
pub(crate) struct CheckedBody {
    pub value: Value,
    pub warnings: Vec<String>,
}

/// Decodes the body as an object of `kind`. Warnings reach the client even if the request fails later.
pub fn decode_body(
    call: &ResourceCall,
    kind: &Kind,
    strictness: FieldValidation,
) -> Result<CanonicalObject, Status> {
    let ResourceCall {
        server,
        request,
        notes,
        ..
    } = call;
    let body_type = body_type(request)?;
    let (gvk, loose) = (&kind.gvk, kind.rules.loose);
    let decoder = BodyDecoder {
        catalog: &server.catalog,
        gvk,
        also: None,
        root: &kind.root,
        strictness,
    };
    let (decoded, stated) = if loose {
        let decoded = decoder.decode_custom(body_type, &request.body)?;
        let stated = stated_kind(&decoded.value);
        (decoded, stated)
    } else {
        let decoded = decoder.decode(body_type, &request.body)?;
        (decoded, gvk.clone())
    };
    // Kubernetes: a strict decoding error names the stated kind twice, also where another is expected.
    let checked = check_strict(decoded, strictness)
        .map_err(|errors| cannot_handle(&stated, &stated, &strict_error(&errors)))?;
    notes.warn_all(checked.warnings);
    if (&stated.group, &stated.version) != (&gvk.group, &gvk.version) {
        return Err(version_mismatch(&stated, gvk));
    }
    let object =
        apply_defaults(kind, checked.value).map_err(|problem| cannot_handle(gvk, gvk, &problem))?;
    request.record.set_request_object(gvk, &kind.root, &object);
    Ok(object)
}

/// Decodes the body as a kind that is no resource, such as a Scale. `also` is a second version that is accepted.
pub fn decode_body_as(
    call: &ResourceCall,
    gvk: &GroupVersionKind,
    also: Option<&GroupVersionKind>,
    root: &Struct,
    strictness: FieldValidation,
) -> Result<Value, Status> {
    let ResourceCall {
        server,
        request,
        notes,
        ..
    } = call;
    let body_type = body_type(request)?;
    let decoder = BodyDecoder {
        catalog: &server.catalog,
        gvk,
        also,
        root,
        strictness,
    };
    let decoded = decoder.decode(body_type, &request.body)?;
    let checked = check_strict(decoded, strictness)
        .map_err(|errors| cannot_handle(gvk, gvk, &strict_error(&errors)))?;
    notes.warn_all(checked.warnings);
    request.record.set_request_object(gvk, root, &checked.value);
    Ok(checked.value)
}

/// The kind that an object states.
pub(crate) fn stated_kind(object: &Value) -> GroupVersionKind {
    let api_version = object["apiVersion"].str();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: object["kind"].str().into(),
    }
}

/// Whether an object states this kind, and only this.
pub(crate) fn states_exactly(object: &Value, gvk: &GroupVersionKind) -> bool {
    // Go finds these two fields in any case.
    let is_other_case = |name: &str| {
        ["kind", "apiVersion"]
            .iter()
            .any(|field| name.eq_ignore_ascii_case(field) && name != *field)
    };
    object["kind"].str() == gvk.kind
        && object["apiVersion"].str() == gvk.api_version()
        && !object.entries().any(|(name, _)| is_other_case(name))
}

/// Applies the defaults of the kind. Fails if the value cannot be an object of the kind.
///
/// Invariant: this is where a write brings its object into canonical form. Later stages keep it.
pub(crate) fn apply_defaults(kind: &Kind, mut value: Value) -> Result<CanonicalObject, String> {
    kind.hooks.normalize(&mut value)?;
    default::apply(&kind.root, &mut value);
    kind.hooks.default(&mut value);
    let mut object = CanonicalObject::from(value);
    object.restore(&kind.root);
    Ok(object)
}

/// Rejects, turns into warnings or drops the strict errors.
pub(crate) fn check_strict(
    decoded: DecodedBody,
    strictness: FieldValidation,
) -> Result<CheckedBody, Vec<String>> {
    let errors = decoded.strict_errors;
    let warnings = match strictness {
        FieldValidation::Strict if !errors.is_empty() => return Err(errors),
        FieldValidation::Warn => errors.iter().flat_map(|error| as_warnings(error)).collect(),
        _ => Vec::new(),
    };
    Ok(CheckedBody {
        value: decoded.value,
        warnings,
    })
}

/// The YAML decoder reports all strict errors in one message. Each line becomes a warning.
pub(crate) fn as_warnings(error: &str) -> Vec<String> {
    match error.strip_prefix("yaml: unmarshal errors:\n") {
        Some(lines) => lines.lines().map(|line| line.trim().to_string()).collect(),
        None => vec![error.to_string()],
    }
}

/// The message of strict errors that reject a request.
pub(crate) fn strict_error(errors: &[String]) -> String {
    format!("strict decoding error: {}", errors.join(", "))
}

/// An object with its strict errors: unknown and duplicate fields.
pub(crate) struct DecodedBody {
    pub value: Value,
    pub strict_errors: Vec<String>,
}

/// A body of which only the kind has been decoded.
pub(crate) struct TypedBody<'a> {
    stated: TypeMeta,
    content: BodyContent<'a>,
    /// The strict errors of the YAML decoder.
    yaml_error: Option<String>,
    body: &'a [u8],
}

enum BodyContent<'a> {
    Json(Cow<'a, [u8]>),
    Protobuf(&'a [u8]),
}

/// The errors are those of upstream's decoders, without what a verb adds.
impl<'a> TypedBody<'a> {
    pub(crate) fn open(body_type: BodyType, body: &'a [u8]) -> Result<TypedBody<'a>, String> {
        let (text, yaml_error) = match body_type {
            BodyType::Json => (Cow::Borrowed(body), None),
            BodyType::Yaml => {
                let read = yaml::read(body).map_err(|error| error.to_string())?;
                (Cow::Owned(read.to_json()), read.complaint)
            }
            BodyType::Protobuf => return TypedBody::open_protobuf(body),
        };
        let stated = type_meta(&text)
            .map_err(|problem| format!("couldn't get version/kind; json parse error: {problem}"))?;
        if stated.api_version.matches('/').count() > 1 {
            return Err(format!(
                "unexpected GroupVersion string: {}",
                stated.api_version
            ));
        }
        Ok(TypedBody {
            stated,
            content: BodyContent::Json(text),
            yaml_error,
            body,
        })
    }

    fn open_protobuf(body: &'a [u8]) -> Result<TypedBody<'a>, String> {
        let unknown = proto::decode_object(body).map_err(|error| error.to_string())?;
        let mut stated = TypeMeta {
            api_version: unknown.api_version.as_str().into(),
            kind: unknown.kind.as_str().into(),
        };
        // Kubernetes: a version that cannot be parsed counts as none here (schema.FromAPIVersionAndKind).
        if stated.api_version.matches('/').count() > 1 {
            stated.api_version = Str::default();
        }
        Ok(TypedBody {
            stated,
            content: BodyContent::Protobuf(unknown.raw),
            yaml_error: None,
            body,
        })
    }

    /// Whether the body states its kind.
    pub(crate) fn states_kind(&self) -> bool {
        !self.stated.kind.is_empty()
    }

    /// The kind of the body; parts that it does not state are those of `default`.
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
        let any_group = matches!(self.content, BodyContent::Protobuf(_)) || group.is_empty();
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

    pub(crate) fn decode(self, root: &Struct) -> Result<DecodedBody, DecodeError> {
        let (value, errors) = match self.content {
            BodyContent::Json(text) => {
                let decoded = decode(root, &text)?;
                (decoded.value, decoded.complaints)
            }
            BodyContent::Protobuf(message) => {
                let value = proto::decode_message(root, message)
                    .map_err(|error| DecodeError::Type(error.to_string()))?;
                (value, Vec::new())
            }
        };
        Ok(DecodedBody {
            value,
            strict_errors: self.yaml_error.into_iter().chain(errors).collect(),
        })
    }
}

struct BodyDecoder<'a> {
    catalog: &'a Catalog,
    gvk: &'a GroupVersionKind,
    also: Option<&'a GroupVersionKind>,
    root: &'a Struct,
    strictness: FieldValidation,
}

impl BodyDecoder<'_> {
    /// The fast path: JSON or YAML of the expected kind without strict errors, in one scan. A body that it declines is
    /// decoded again, step by step, for the right error.
    fn decode_fast(&self, body_type: BodyType, body: &[u8]) -> Option<DecodedBody> {
        let value = match body_type {
            BodyType::Json => {
                let Decoded { value, complaints } = decode(self.root, body).ok()?;
                complaints.is_empty().then_some(value)?
            }
            BodyType::Yaml => {
                let read = yaml::read(body).ok()?;
                match read.complaint {
                    None => decode_value(self.root, read.value)?,
                    Some(_) => return None,
                }
            }
            BodyType::Protobuf => return None,
        };
        let (is_custom, gvk) = (self.root.rest().is_some(), self.gvk);
        let is_expected = states_exactly(&value, gvk)
            || !is_custom && {
                let (kind, version) = (value["kind"].str(), value["apiVersion"].str());
                (kind.is_empty() || kind == gvk.kind)
                    && (version.is_empty() || version == gvk.api_version())
            };
        is_expected.then_some(DecodedBody {
            value,
            strict_errors: Vec::new(),
        })
    }

    fn decode(&self, body_type: BodyType, body: &[u8]) -> Result<DecodedBody, Status> {
        if let Some(decoded) = self.decode_fast(body_type, body) {
            return Ok(decoded);
        }
        let typed = TypedBody::open(body_type, body)
            .map_err(|problem| self.unrecognized(&problem, body))?;
        let stated = self.check_kind(&typed)?;
        typed
            .decode(self.root)
            .map_err(|error| cannot_handle(&stated, self.gvk, &error.to_string()))
    }

    /// Kubernetes: a custom object is decoded as a map. It must state a kind; validation decides whether that is the right
    /// one (serializer/json, unstructuredSchemaCoercer).
    fn decode_custom(&self, body_type: BodyType, body: &[u8]) -> Result<DecodedBody, Status> {
        if let Some(decoded) = self.decode_fast(body_type, body) {
            return Ok(decoded);
        }
        let typed = TypedBody::open(body_type, body)
            .map_err(|problem| self.unrecognized(&problem, body))?;
        let interpreted = typed.gvk_unchecked(self.gvk);
        typed.decode(self.root).map_err(|error| match error {
            DecodeError::NoKind(_) => {
                let problem = format!(
                    "Object 'Kind' is missing in '{}'",
                    String::from_utf8_lossy(body)
                );
                // Kubernetes: a strict decoder ignores the default kind.
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

    /// The kind of the body, which must be the expected one. Parts that it does not state are filled in.
    fn check_kind(&self, body: &TypedBody) -> Result<GroupVersionKind, Status> {
        let stated = body
            .gvk(self.gvk)
            .map_err(|problem| cannot_handle(&body.gvk_unchecked(self.gvk), self.gvk, &problem))?;
        if stated == *self.gvk || Some(&stated) == self.also {
            return Ok(stated);
        }
        if stated.kind == self.gvk.kind && is_known(self.catalog, &stated, self.gvk) {
            return Err(version_mismatch(&stated, self.gvk));
        }
        let problem = kind_problem(self.catalog, &stated, self.gvk);
        Err(cannot_handle(&stated, self.gvk, &problem))
    }

    fn unrecognized(&self, problem: &str, body: &[u8]) -> Status {
        let (kind, summary) = (&self.gvk.kind, summary(body));
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {problem} ({summary})"
        ))
    }
}

/// Why an object of the stated kind cannot be converted to the expected one.
pub(crate) fn kind_problem(
    catalog: &Catalog,
    stated: &GroupVersionKind,
    expected: &GroupVersionKind,
) -> String {
    if is_known(catalog, stated, expected) {
        // Go's package of the group's internal types: `core`, `rbac`.
        let first = expected.group.split('.').next();
        let package = first.filter(|name| !name.is_empty()).unwrap_or("core");
        let kind = &stated.kind;
        let version = if is_meta_kind(kind) {
            "v1"
        } else {
            &stated.version
        };
        return format!(
            "converting ({version}.{kind}) to ({package}.{}): unknown conversion",
            expected.kind
        );
    }
    let (kind, version) = (
        json::quote(&stated.kind),
        json::quote(&stated.api_version()),
    );
    format!(
        "no kind {kind} is registered for version {version} in scheme {}",
        json::quote(scheme(&expected.group))
    )
}

/// Where upstream creates the scheme of a group. Three servers share one address: those of CustomResourceDefinitions and
/// of APIServices have only their own group.
fn scheme(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "pkg/apiserver/apiserver.go:55",
        "apiregistration.k8s.io" => "pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// Whether the scheme of the expected kind also has the stated one.
fn is_known(catalog: &Catalog, stated: &GroupVersionKind, expected: &GroupVersionKind) -> bool {
    let known = catalog.knows_kind(stated);
    // Kinds such as Status are in the version `v1` of every scheme.
    let is_everywhere = is_meta_kind(&stated.kind) && stated.api_version() == "v1";
    known && (is_everywhere || scheme(&stated.group) == scheme(&expected.group))
}

/// 400: the object states another version.
fn version_mismatch(stated: &GroupVersionKind, expected: &GroupVersionKind) -> Status {
    let (stated, expected) = (stated.api_version(), expected.api_version());
    Status::bad_request(format!(
        "the API version in the data ({stated}) does not match the expected API version ({expected})"
    ))
}

/// 400: the object cannot be decoded as the expected kind.
pub(crate) fn cannot_handle(
    stated: &GroupVersionKind,
    expected: &GroupVersionKind,
    problem: &str,
) -> Status {
    let (kind, version, expected) = (&stated.kind, json::quote(&stated.version), &expected.kind);
    Status::bad_request(format!(
        "{kind} in version {version} cannot be handled as a {expected}: {problem}"
    ))
}

/// The beginning of a body, for an error message.
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
