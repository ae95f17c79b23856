//! Toppings have a price, and a pizza has only toppings that there are.

use mizzen_apiserver::extend::{AdmissionPlugin, RequestContext};
use mizzen_object::{HookContext, Hooks, Status, Violations};
use mizzen_registry::BoxFuture;
use mizzen_value::Value;

use crate::GROUP;

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

/// Refuses pizzas with unknown toppings.
pub struct MustExist;

impl AdmissionPlugin for MustExist {
    fn validate<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        pizza: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let Some(pizza) = pizza.filter(|_| context.is("pizzas")) else {
                return Ok(());
            };
            for topping in pizza["spec"]["toppings"].list() {
                let name = topping["name"].str();
                if find(context, name).await?.is_none() {
                    return Err(context.forbidden(pizza, &format!("unknown topping: {name}")));
                }
            }
            Ok(())
        })
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
