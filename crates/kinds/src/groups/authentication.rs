//! authentication.k8s.io: TokenRequests.

use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

pub(super) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "TokenRequest" => Behaviour::of::<TokenRequestStrategy>(),
        _ => Behaviour::NONE,
    }
}

pub(super) struct TokenRequestStrategy;

impl KindStrategy for TokenRequestStrategy {
    fn default(request: &mut Value) {
        request.entry("spec").set_default("expirationSeconds", 3600);
    }

    fn validate(request: &Value, _: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let spec = Path::new("spec");
        let path = spec.child("expirationSeconds");
        let seconds = request["spec"]["expirationSeconds"].int();
        if seconds < 600 {
            violations.invalid(
                path,
                seconds,
                "may not specify a duration less than 10 minutes",
            );
        }
        if seconds > 1 << 32 {
            violations.invalid(
                path,
                seconds,
                "may not specify a duration larger than 2^32 seconds",
            );
        }
    }
}
