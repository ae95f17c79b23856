//! Toppings have a price, and a pizza has only toppings that there are.

use mizzen_apiserver::extend::{AdmissionPlugin, Error, RequestContext};
use mizzen_object::{HookContext, Hooks, Status, Violations};
use mizzen_value::Value;

use crate::{GROUP, PIZZAS};

/// The rules of a topping.
pub struct Rules;

impl Hooks for Rules {
    fn validate(
        &self,
        topping: &Value,
        _: Option<&Value>,
        _: &HookContext,
        violations: &mut Violations,
    ) {
        let cost = &topping["spec"]["cost"];
        if cost.as_f64().is_some_and(|cost| cost < 0.0) {
            violations.invalid(
                "spec.cost",
                cost.clone(),
                "must be greater than or equal to 0",
            );
        }
    }
}

/// The kitchen's toppings are the same objects, with their costs in cents.
pub struct InCents;

impl Hooks for InCents {
    fn to_stored(&self, topping: &mut Value) {
        let spec = topping.entry("spec");
        let cents = spec.remove("cents").unwrap_or_default().int();
        spec.set(
            "cost",
            Value::Number((cents as f64 / 100.0).to_string().into()),
        );
    }

    fn from_stored(&self, topping: &mut Value) {
        let spec = topping.entry("spec");
        let cost = spec.remove("cost").and_then(|cost| cost.as_f64());
        spec.set("cents", (cost.unwrap_or_default() * 100.0).round() as i64);
    }

    fn validate(
        &self,
        topping: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        Rules.validate(topping, old, context, violations);
    }
}

/// Rejects pizzas with unknown toppings.
pub struct MustExist;

impl AdmissionPlugin for MustExist {
    async fn validate(
        &self,
        context: &RequestContext<'_>,
        pizza: Option<&Value>,
    ) -> Result<(), Error> {
        let Some(pizza) = pizza.filter(|_| context.is(&PIZZAS)) else {
            return Ok(());
        };
        for topping in pizza["spec"]["toppings"].list() {
            let name = topping["name"].str();
            if find(context, name).await?.is_none() {
                return Err(context.forbidden(pizza, &format!("unknown topping: {name}")));
            }
        }
        Ok(())
    }
}

/// The topping of this name.
pub async fn find(context: &RequestContext<'_>, name: &str) -> Result<Option<Value>, Status> {
    match context
        .server
        .read(&format!("/apis/{GROUP}/v1alpha1/toppings/{name}"))
        .await
    {
        Ok(topping) => Ok(Some(topping)),
        Err(status) if status.code == 404 => Ok(None),
        Err(status) => Err(status),
    }
}
