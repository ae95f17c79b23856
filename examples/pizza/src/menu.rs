//! The menu and the price of a pizza, computed on request.

use mizzen_apiserver::extend::{Error, RequestContext, Storage, SubresourceHandler};
use mizzen_object::Hooks;
use mizzen_value::{Value, value};

use crate::{GROUP, toppings};

/// The storage of menus: there is one, `today`, and it is never stored.
pub struct Menu;

impl Storage for Menu {
    async fn list(&self, context: &RequestContext<'_>) -> Result<Vec<Value>, Error> {
        let toppings = context
            .server
            .read(&format!("/apis/{GROUP}/v1alpha1/toppings"))
            .await?;
        let dish = |topping: &Value| {
            value!({
                "topping": (topping["metadata"]["name"].clone()),
                "cost": (topping["spec"]["cost"].clone()),
            })
        };
        let dishes: Vec<Value> = toppings["items"].list().iter().map(dish).collect();
        Ok(vec![
            value!({ "metadata": { "name": "today" }, "dishes": dishes }),
        ])
    }
}

/// The columns of a menu.
pub struct Cells;

impl Hooks for Cells {
    fn cells(&self, menu: &Value, _: i64) -> Vec<Value> {
        let names: Vec<&str> = menu["dishes"]
            .list()
            .iter()
            .map(|dish| dish["topping"].str())
            .collect();
        vec![names.join(", ").into()]
    }
}

/// `pizzas/NAME/receipt`: what a pizza costs today.
pub struct Receipt;

impl SubresourceHandler for Receipt {
    async fn answer(&self, context: &RequestContext<'_>, _: Value) -> Result<Value, Error> {
        let path = format!(
            "/apis/{GROUP}/v1beta1/namespaces/{}/pizzas/{}",
            context.namespace, context.name
        );
        let pizza = context.server.read(&path).await?;
        let mut total = 0.0;
        for topping in pizza["spec"]["toppings"].list() {
            let known = toppings::find(context, topping["name"].str())
                .await?
                .unwrap_or_default();
            total += known["spec"]["cost"].as_f64().unwrap_or_default()
                * topping["quantity"].int() as f64;
        }
        Ok(value!({ "total": (Value::Number(total.to_string().into())) }))
    }
}
