//! A restaurant's API server: pizzas in two versions, toppings in two groups, and a menu that is computed on request.
//!
//! [`server`] is the whole of it. The kinds are data (`pizza.kinds`); [`recipe`] converts the versions of a pizza and deletes
//! pizzas gracefully, [`toppings`] rejects toppings that do not exist, and [`menu`] computes the menu and the price of a
//! pizza.
//! [`webhook`] serves the same conversion to a CustomResourceDefinition, with the SDK.

pub mod menu;
pub mod recipe;
pub mod toppings;
pub mod webhook;

use mizzen_apiserver::{Builder, ClientIdentity, Server};
use mizzen_object::{GroupResource, GroupVersionKind};
use mizzen_registry::Registry;

/// The group of pizzas, toppings and menus.
pub const GROUP: &str = "restaurant.programming-kubernetes.info";
/// The group in which the kitchen finds the same toppings.
pub const KITCHEN: &str = "kitchen.programming-kubernetes.info";

const PIZZA_V1ALPHA1: GroupVersionKind = GroupVersionKind::new(GROUP, "v1alpha1", "Pizza");
const PIZZA_V1BETA1: GroupVersionKind = GroupVersionKind::new(GROUP, "v1beta1", "Pizza");
const TOPPING: GroupVersionKind = GroupVersionKind::new(GROUP, "v1alpha1", "Topping");
const KITCHEN_TOPPING: GroupVersionKind = GroupVersionKind::new(KITCHEN, "v1", "Topping");
const MENU: GroupVersionKind = GroupVersionKind::new(GROUP, "v1alpha1", "Menu");

const PIZZAS: GroupResource = GroupResource::new(GROUP, "pizzas");
const MENUS: GroupResource = GroupResource::new(GROUP, "menus");

/// A certificate for the service `pizza` in the namespace `default`, and its key.
pub fn certificate() -> Result<ClientIdentity, rcgen::Error> {
    let made =
        rcgen::generate_simple_self_signed(["pizza.default.svc".into(), "localhost".into()])?;
    Ok(ClientIdentity {
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
    })
}

/// The API server.
pub fn server(registry: Registry) -> Builder {
    Server::builder(registry)
        .kinds("pizza.kinds", include_str!("pizza.kinds"))
        .hooks(PIZZA_V1ALPHA1, recipe::V1alpha1)
        .hooks(PIZZA_V1BETA1, recipe::V1beta1)
        .hooks(TOPPING, toppings::Rules)
        .hooks(KITCHEN_TOPPING, toppings::InCents)
        .hooks(MENU, menu::Cells)
        .admission(toppings::MustExist)
        .storage(MENUS, menu::Menu)
        .subresource(PIZZAS, "receipt", menu::Receipt)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mizzen_apiserver::clock::{SystemRandom, WallClock};
    use mizzen_apiserver::extend::RoundTrip;
    use mizzen_registry::Store;
    use mizzen_value::Value;

    use super::*;

    #[test]
    fn every_kind_survives_its_round_trips() {
        let store = Store::in_memory(Default::default());
        let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
        let round_trip = RoundTrip {
            normalize: |kind, object| {
                // Prices in cents have no fractions, and quantities no order.
                if kind.gvk == KITCHEN_TOPPING {
                    object.remove("spec");
                }
                if let Some(Value::List(toppings)) = object.at_mut("spec.toppings") {
                    toppings.sort_by_key(|topping| topping.str().to_owned());
                }
            },
            ..RoundTrip::default()
        };
        let server = server(registry).build().unwrap();
        server.check_round_trips(round_trip).unwrap();
    }
}
