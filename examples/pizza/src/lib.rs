//! A restaurant's API server: pizzas in two versions, toppings, and a menu that is made up on the spot.
//!
//! [`server`] is the whole of it. The kinds are data (`pizza.kinds`); [`recipe`] says how the versions of a pizza become
//! each other, [`toppings`] rejects toppings that do not exist, and [`menu`] computes the menu and the price of a pizza.
//! [`webhook`] serves the same conversion to a CustomResourceDefinition.

pub mod menu;
pub mod recipe;
pub mod toppings;
pub mod webhook;

use std::sync::Arc;

use mizzen_apiserver::delegate::Upstream;
use mizzen_apiserver::{BuildError, ClientIdentity, Server};
use mizzen_registry::Registry;

/// The group of everything here.
pub const GROUP: &str = "restaurant.programming-kubernetes.info";

/// A certificate for the service `pizza` in the namespace `default`, and its key.
pub fn certificate() -> Result<ClientIdentity, rcgen::Error> {
    let made =
        rcgen::generate_simple_self_signed(["pizza.default.svc".into(), "localhost".into()])?;
    Ok(ClientIdentity {
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
    })
}

/// The API server. Who asks and what they may do is `upstream`'s to say.
pub fn server(registry: Registry, upstream: &Upstream) -> Result<Server, BuildError> {
    Server::builder(registry)
        .kinds("pizza.kinds", include_str!("pizza.kinds"))
        .hooks(&format!("{GROUP}/v1alpha1.Pizza"), recipe::V1alpha1)
        .hooks(&format!("{GROUP}/v1beta1.Pizza"), recipe::V1beta1)
        .hooks(&format!("{GROUP}/v1alpha1.Topping"), toppings::Rules)
        .hooks(&format!("{GROUP}/v1alpha1.Menu"), menu::Cells)
        .admission(toppings::MustExist)
        .storage(&format!("menus.{GROUP}"), menu::Menu)
        .subresource(&format!("pizzas.{GROUP}"), "receipt", menu::Receipt)
        .authenticator(Arc::new(upstream.clone()))
        .authorizer(Arc::new(upstream.clone()))
        .build()
}
