//! TokenRequest: `POST` to `serviceaccounts/NAME/token` issues a token, optionally bound to an object.

use mizzen_object::{
    Action, GroupResource, GroupVersionKind, Hooks as _, Path, Status, Violations, schema,
};
use mizzen_registry::{Key, Object};
use mizzen_value::clock::uuid;
use mizzen_value::{Value, json, time, value};

use mizzen_apiserver::field_manager::RequestFieldManager;
use mizzen_apiserver::response::{self, Response, ResponseForm, not_acceptable};
use mizzen_apiserver::verbs::{ResourceCall, check_key, set_namespace};
use mizzen_apiserver::{admission, decode, options};
use mizzen_authentication::TokenSigner;

/// Kubernetes: the lifetime that a kubelet requests for a projected token, and the extended one that it gets, so that old
/// clients that never read their token again go on working (serviceaccount/claims.go).
const WARN_ONLY_BOUND_TOKEN: i64 = 3607;
const EXTENDED: i64 = 365 * 24 * 60 * 60;

pub(super) async fn create(call: &ResourceCall<'_>) -> Result<Response, Status> {
    if matches!(call.accept.form, ResponseForm::Table(_)) {
        return Err(not_acceptable());
    }
    let ResourceCall {
        server,
        request,
        path,
        ..
    } = call;
    let options = options::write_options(request, "CreateOptions")?;
    let (gvk, root) = (token_kind(), &server.types.token_request);
    let mut token = decode::decode_body_as(call, &gvk, None, root, options.strictness)?;
    mizzen_kinds::behaviour(&gvk).default(&mut token);
    set_namespace(path, token.entry("metadata"))?;
    admission::admit_below(call, &mut token).await?;
    let mut nothing = Value::object();
    schema::canonical(root, &mut nothing);
    RequestFieldManager::new(call).update_as(&gvk, root, &nothing, &mut token);
    admission::admit_other(call, &gvk, root, &mut token, None).await?;
    admission::check_other(call, &gvk, root, &token, None).await?;
    issue_token(call, &mut token).await?;
    token.set("kind", &gvk.kind);
    token.set("apiVersion", gvk.api_version());
    schema::canonical(root, &mut token);
    if let ResponseForm::Metadata(_) = call.accept.form {
        let object = Object::unstored(json::to_string(&token).into());
        return Ok(call.renderer().object(&object, 201));
    }
    Ok(response::value(&gvk, Some(root), &token, call.accept, 201))
}

fn token_kind() -> GroupVersionKind {
    GroupVersionKind {
        group: "authentication.k8s.io".into(),
        version: "v1".into(),
        kind: "TokenRequest".into(),
    }
}

/// Validates the request and fills in its status.
async fn issue_token(call: &ResourceCall<'_>, token: &mut Value) -> Result<(), Status> {
    let account = account(call, &token["metadata"]).await?;
    let now = call.server.registry.now();
    let metadata = token.entry("metadata");
    for field in ["name", "namespace", "uid"] {
        metadata.set(field, account["metadata"][field].clone());
    }
    metadata.set("creationTimestamp", time::from_unix(now));
    if token["spec"]["audiences"].is_empty() {
        let audiences = call.server.options.service_accounts.audiences();
        token.entry("spec").set(
            "audiences",
            Value::List(audiences.iter().map(Value::from).collect()),
        );
    }
    validate(call, token)?;
    let bound = bound_claims(call, &token["spec"]["boundObjectRef"]).await?;
    let requested = token["spec"]["expirationSeconds"].int();
    let longest = call.server.options.service_accounts.max_expiration;
    if let Some(longest) = longest.filter(|longest| requested > *longest) {
        call.notes.warn(format!(
            "requested expiration of {requested} seconds shortened to {longest} seconds"
        ));
        token.entry("spec").set("expirationSeconds", longest);
    }
    let Some(signer) = call.server.options.signer.as_deref() else {
        let message = "this server issues no tokens: it has no key to sign them with";
        return Err(Status::failure(501, "NotImplemented", message));
    };
    token.set("status", signed_status(call, signer, token, bound, now)?);
    Ok(())
}

/// The service account of the token. Name and uid in the request must match it.
async fn account(call: &ResourceCall<'_>, metadata: &Value) -> Result<Value, Status> {
    let name = call.path.name.as_str();
    let stated = metadata["name"].str();
    if !stated.is_empty() && stated != name {
        let mut violations = Violations::default();
        let path = Path::new("metadata");
        violations.invalid(
            path.child("name"),
            stated,
            "must match the service account name if specified",
        );
        return Err(Status::invalid(&token_kind(), name, &violations));
    }
    let account = call
        .server
        .registry
        .read(call.resource, &call.key(), "")
        .await?
        .value();
    let (stated, uid) = (metadata["uid"].str(), account["metadata"]["uid"].str());
    if !stated.is_empty() && stated != uid {
        let GroupVersionKind { group, kind, .. } = token_kind();
        let why = format!(
            "the UID in the token request ({stated}) does not match the UID of the service account ({uid})"
        );
        return Err(Status::conflict(
            &GroupResource {
                group,
                resource: kind,
            },
            name,
            &why,
        ));
    }
    Ok(account)
}

fn validate(call: &ResourceCall, token: &Value) -> Result<(), Status> {
    let (user, now) = (&call.request.user, call.server.registry.timestamp());
    let mut violations = Violations::default();
    let context = user.context(Action::Create, &now);
    mizzen_kinds::behaviour(&token_kind()).validate(token, None, &context, &mut violations);
    if violations.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(&token_kind(), "", &violations))
    }
}

/// The claims of the object that a token is bound to.
async fn bound_claims(call: &ResourceCall<'_>, reference: &Value) -> Result<Value, Status> {
    if reference.is_null() {
        return Ok(Value::object());
    }
    let (version, kind, name) = (
        reference["apiVersion"].str(),
        reference["kind"].str(),
        reference["name"].str(),
    );
    let namespace = call.path.namespace.as_str();
    let mut claims = Value::object();
    let object = match (version.contains('/'), kind) {
        (false, "Pod") => {
            let pod = get(call, "pods", namespace, name).await?;
            let account = call.path.name.as_str();
            if pod["spec"]["serviceAccountName"].str() != account {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount \"{account}\" to pod running with different serviceaccount name."
                )));
            }
            // The token of a pod names its node, even if the node does not exist.
            let node = pod["spec"]["nodeName"].str();
            if !node.is_empty() {
                let found = get(call, "nodes", "", node).await;
                let unknown = |_| value!({ "name": node });
                claims.set(
                    "node",
                    found.map_or_else(unknown, |node| reference_to(&node)),
                );
            }
            pod
        }
        (false, "Secret") => get(call, "secrets", namespace, name).await?,
        (false, "Node") => get(call, "nodes", "", name).await?,
        _ => {
            let parts: Vec<&str> = version.split('/').collect();
            let (group, version) = match parts[..] {
                [version] => ("", version),
                [group, version] => (group, version),
                _ => ("", ""),
            };
            let message =
                format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(message));
        }
    };
    check_uid(reference, &object)?;
    claims.set(&kind.to_ascii_lowercase(), reference_to(&object));
    Ok(claims)
}

async fn get(
    call: &ResourceCall<'_>,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Result<Value, Status> {
    let resource = call
        .server
        .catalog
        .get("", "v1", plural)
        .ok_or_else(Status::no_such_resource)?;
    check_key(resource.kind(), namespace, name)?;
    Ok(call
        .server
        .registry
        .read(&resource, &Key::new(namespace, name), "")
        .await?
        .value())
}

fn check_uid(reference: &Value, object: &Value) -> Result<(), Status> {
    let expected = reference["uid"].str();
    if expected.is_empty() || expected == object["metadata"]["uid"].str() {
        return Ok(());
    }
    let kind = GroupResource {
        group: "".into(),
        resource: reference["kind"].str().into(),
    };
    let why = format!(
        "the UID in the bound object reference ({expected}) does not match the UID in record. The object might have been \
         deleted and then recreated"
    );
    Err(Status::conflict(&kind, reference["name"].str(), &why))
}

fn reference_to(object: &Value) -> Value {
    let mut reference = Value::object();
    for field in ["name", "uid"] {
        reference.set(field, object["metadata"][field].clone());
    }
    reference
}

/// The status with the signed token.
fn signed_status(
    call: &ResourceCall,
    signer: &dyn TokenSigner,
    token: &Value,
    mut bound: Value,
    now: i64,
) -> Result<Value, Status> {
    let (metadata, spec) = (&token["metadata"], &token["spec"]);
    let seconds = spec["expirationSeconds"].int();
    let accounts = &call.server.options.service_accounts;
    let is_own = |audience: &Value| accounts.audiences().iter().any(|own| own == audience.str());
    let ours = spec["audiences"].list().iter().all(is_own);
    let extended = accounts.extend_expiration
        && seconds == WARN_ONLY_BOUND_TOKEN
        && !bound["pod"].is_null()
        && ours;
    if extended {
        bound.set("warnafter", now + seconds);
    }
    bound.set("namespace", metadata["namespace"].clone());
    bound.set(
        "serviceaccount",
        value!({ "name": (metadata["name"].str()), "uid": (metadata["uid"].str()) }),
    );
    let mut claims = value!({
        "exp": (now + if extended { EXTENDED } else { seconds }),
        "iat": now,
        "iss": (accounts.issuer()),
        "jti": (uuid(call.server.registry.random())),
        "nbf": now,
        "sub": (format!("system:serviceaccount:{}:{}", metadata["namespace"].str(), metadata["name"].str()))
    });
    let credential = format!("JTI={}", claims["jti"].str());
    call.request.record.annotate(
        "authentication.kubernetes.io/issued-credential-id",
        credential,
    );
    claims.set("aud", spec["audiences"].clone());
    claims.set("kubernetes.io", bound);
    let text = mizzen_authentication::issue_token(signer, &claims)
        .ok_or_else(|| Status::internal("failed to generate token"))?;
    Ok(value!({ "token": text, "expirationTimestamp": (time::from_unix(now + seconds)) }))
}
