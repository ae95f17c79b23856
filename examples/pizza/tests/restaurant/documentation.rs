//! Is the documentation of own API servers true? The snippet of README.md is compiled here; those of
//! `docs/own-api-server.md` are compared with sources by the tests of the handbook.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::{Client, CustomResource, CustomResourceExt as _};
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::delegate::{RunError, Serving, Upstream};
use mizzen_apiserver::discovery::Priority;
use mizzen_apiserver::{BuildError, Server, User};
use mizzen_object::{GroupVersionKind, HookContext, Hooks, Violations};
use mizzen_registry::{Registry, Store};
use mizzen_value::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of which the definition is derived.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[kube(group = "example.com", version = "v1", kind = "Pizza", namespaced)]
struct PizzaSpec {
    #[schemars(range(min = 20, max = 60))]
    centimetres: u32,
    toppings: Vec<String>,
}

const PIZZA_V1: GroupVersionKind = GroupVersionKind::new("example.com", "v1", "Pizza");

/// A rule beyond the schema.
struct Recipe;

impl Hooks for Recipe {
    fn validate(
        &self,
        pizza: &Value,
        _: Option<&Value>,
        _: &HookContext,
        violations: &mut Violations,
    ) {
        let toppings = &pizza["spec"]["toppings"];
        if toppings.list().contains(&"pineapple".into()) {
            violations.invalid("spec.toppings", toppings.clone(), "not in this kitchen");
        }
    }
}

fn registry() -> Registry {
    let store = Store::in_memory(Default::default());
    Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom))
}

/// The server of README.md.
#[expect(dead_code, reason = "it is compiled, and needs a main server to run")]
async fn readme(
    registry: Registry,
    upstream: Upstream,
    serving: Serving,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let Serving { listener, identity } = serving;
    Server::builder(registry)
        .kind(&Pizza::crd())
        .hooks(PIZZA_V1, Recipe)
        .upstream(&upstream)
        .run(Serving { listener, identity }, stop)
        .await?;
    Ok(())
}

/// The section "In the same process".
async fn in_the_same_process(registry: Registry) -> Result<Server, BuildError> {
    let main = mizzen_controlplane::in_memory().await;
    let priority = Priority {
        group: 1000,
        version: 15,
    };
    main.serve_locally(pizza::server(registry), priority)?;
    Ok(main)
}

fn api(server: &Server) -> Api<Pizza> {
    let service = server.in_process(User::master("cook"), "test");
    Api::namespaced(Client::new(service, "default"), "default")
}

#[tokio::test]
async fn a_kind_that_is_derived_is_served_and_validated() {
    let builder = Server::builder(registry()).kind(&Pizza::crd());
    let server = builder.hooks(PIZZA_V1, Recipe).build().unwrap();
    let pizzas = api(&server);
    let create = async |name: &str, centimetres: u32, topping: &str| {
        let spec = PizzaSpec {
            centimetres,
            toppings: vec![topping.into()],
        };
        let pizza = Pizza::new(name, spec);
        pizzas.create(&PostParams::default(), &pizza).await
    };
    let made = create("marinara", 26, "garlic").await.unwrap();
    assert!(made.metadata.uid.is_some());
    let found = pizzas.get("marinara").await.unwrap();
    assert_eq!(found.spec.toppings, ["garlic"]);

    let refused = create("giant", 100, "garlic").await.unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("spec.centimetres in body should be less than or equal to 60"),
        "{text}"
    );
    let refused = create("hawaii", 26, "pineapple").await.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("not in this kitchen"), "{text}");
}

#[tokio::test]
async fn a_server_of_the_same_process_has_the_namespaces_of_the_main_one() {
    let main = in_the_same_process(registry()).await.unwrap();
    let topping = r#"{"metadata":{"name":"garlic"},"spec":{"cost":0.25}}"#;
    let pizza = r#"{"metadata":{"name":"marinara"},"spec":{"toppings":["garlic"]}}"#;
    let root = format!("/apis/{}/v1alpha1", pizza::GROUP);
    let post = async |path: String, text: &str| {
        let object = mizzen_value::json::parse(text.as_bytes()).unwrap();
        main.ask("POST", &format!("{root}/{path}"), Some(&object))
            .await
    };
    assert_eq!(post("toppings".into(), topping).await.0, 201);
    let (code, status) = post("namespaces/napoli/pizzas".into(), pizza).await;
    assert_eq!(code, 404);
    assert_eq!(status["message"].str(), "namespaces \"napoli\" not found");

    let client = Client::new(main.in_process(User::master("cook"), "test"), "default");
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("napoli".into());
    let namespaces: Api<Namespace> = Api::all(client);
    let made = namespaces.create(&PostParams::default(), &namespace).await;
    made.unwrap();
    assert_eq!(post("namespaces/napoli/pizzas".into(), pizza).await.0, 201);
}

/// Whether the lines of a snippet are consecutive lines of a source, whatever their indentation.
fn is_part(snippet: &[&str], source: &str) -> bool {
    let source: Vec<&str> = source.lines().map(str::trim).collect();
    source.windows(snippet.len()).any(|lines| lines == snippet)
}

#[test]
fn the_snippet_of_the_readme_is_part_of_this_file() {
    let readme = include_str!("../../../../README.md");
    let (_, section) = readme.split_once("## Your own API server").unwrap();
    let (_, block) = section.split_once("\n    ").unwrap();
    let (block, _) = block.split_once("\n\n").unwrap();
    let lines: Vec<&str> = block.lines().map(str::trim).collect();
    let is_compiled = is_part(&lines, include_str!("documentation.rs"));
    assert!(is_compiled, "it does not have:\n{block}");
}
