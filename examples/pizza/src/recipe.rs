//! A pizza's two versions: `v1alpha1` names each topping as often as it is on it, `v1beta1` says how often.

use mizzen_object::{HookContext, Hooks, Path, Violations};
use mizzen_value::{Value, value};

/// What a pizza has on it whose customer did not choose.
const USUAL: [&str; 3] = ["tomato", "mozzarella", "salami"];

/// No pizza has more of a topping. A mistyped number must not fill the memory when it is spelled out.
const MAX: i64 = 100;

/// The rules of `v1alpha1`.
pub struct V1alpha1;

/// The rules of `v1beta1`, which is also the version in which pizzas are stored.
pub struct V1beta1;

impl Hooks for V1alpha1 {
    fn default(&self, pizza: &mut Value) {
        if pizza["spec"]["toppings"].list().is_empty() {
            let usual = USUAL.iter().map(|name| Value::from(*name)).collect();
            pizza.entry("spec").set("toppings", Value::List(usual));
        }
    }

    fn to_stored(&self, pizza: &mut Value) {
        count(pizza);
    }

    fn from_stored(&self, pizza: &mut Value) {
        spell_out(pizza);
    }

    fn validate(
        &self,
        pizza: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        V1beta1.validate(pizza, old, context, violations);
    }

    fn cells(&self, pizza: &Value, _: i64) -> Vec<Value> {
        let names: Vec<&str> = pizza["spec"]["toppings"]
            .list()
            .iter()
            .map(Value::str)
            .collect();
        vec![names.join(", ").into()]
    }
}

impl Hooks for V1beta1 {
    fn default(&self, pizza: &mut Value) {
        if pizza["spec"]["toppings"].list().is_empty() {
            let usual = USUAL
                .iter()
                .map(|name| value!({ "name": (*name), "quantity": 1 }))
                .collect();
            pizza.entry("spec").set("toppings", Value::List(usual));
        }
        for topping in pizza.entry("spec").entry("toppings").make_list() {
            if topping["quantity"].int() == 0 {
                topping.set("quantity", 1);
            }
        }
    }

    fn validate(
        &self,
        pizza: &Value,
        _: Option<&Value>,
        _: &HookContext,
        violations: &mut Violations,
    ) {
        let path = Path::new("spec.toppings");
        for (index, topping) in pizza["spec"]["toppings"].list().iter().enumerate() {
            let path = path.index(index);
            if topping["name"].is_empty() {
                violations.required(path.child("name"), "cannot be empty");
            }
            if !(1..=MAX).contains(&topping["quantity"].int()) {
                let why = "must be between 1 and 100, inclusive";
                violations.invalid(path.child("quantity"), topping["quantity"].clone(), why);
            }
        }
    }

    /// A pizza goes at once, unless the client gives the guests some time. Then it is terminating until it is deleted once
    /// more, without a grace period.
    fn grace_period(&self, _: &Value, asked: Option<i64>) -> Option<i64> {
        Some(asked.unwrap_or(0))
    }

    fn cells(&self, pizza: &Value, _: i64) -> Vec<Value> {
        let show =
            |topping: &Value| format!("{}×{}", topping["name"].str(), topping["quantity"].int());
        let shown: Vec<String> = pizza["spec"]["toppings"].list().iter().map(show).collect();
        vec![shown.join(", ").into()]
    }
}

/// `v1alpha1` to `v1beta1`: says of each topping how often it is named.
pub fn count(pizza: &mut Value) {
    let mut counted: Vec<Value> = Vec::new();
    for name in pizza["spec"]["toppings"].list() {
        match counted.iter_mut().find(|topping| topping["name"] == *name) {
            Some(topping) => topping.set("quantity", topping["quantity"].int() + 1),
            None => counted.push(value!({ "name": (name.clone()), "quantity": 1 })),
        }
    }
    pizza.entry("spec").set("toppings", Value::List(counted));
}

/// `v1beta1` to `v1alpha1`: names each topping as often as it is there.
pub fn spell_out(pizza: &mut Value) {
    let toppings = pizza["spec"]["toppings"].list().iter();
    let names = toppings.flat_map(|topping| {
        let times = topping["quantity"].int().clamp(0, MAX);
        (0..times).map(|_| topping["name"].clone())
    });
    let names = names.collect();
    pizza.entry("spec").set("toppings", Value::List(names));
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    #[track_caller]
    fn check(alpha: &str, beta: &str) {
        let mut pizza = json::parse(alpha.as_bytes()).unwrap();
        count(&mut pizza);
        assert_eq!(json::to_string(&pizza), beta);
        spell_out(&mut pizza);
        assert_eq!(json::to_string(&pizza), alpha);
    }

    #[test]
    fn versions_become_each_other_and_lose_nothing() {
        check(
            r#"{"spec":{"toppings":["mozzarella","mozzarella","tomato"]}}"#,
            r#"{"spec":{"toppings":[{"name":"mozzarella","quantity":2},{"name":"tomato","quantity":1}]}}"#,
        );
        check(r#"{"spec":{"toppings":[]}}"#, r#"{"spec":{"toppings":[]}}"#);
    }

    #[test]
    fn a_pizza_without_toppings_gets_the_usual_ones() {
        let mut pizza = value!({});
        V1beta1.default(&mut pizza);
        spell_out(&mut pizza);
        let mut other = value!({});
        V1alpha1.default(&mut other);
        assert_eq!(pizza, other);
        assert_eq!(other["spec"]["toppings"].list().len(), 3);
    }
}
