//! Discovery: the kinds of a server and their names.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! # let web = br#"{"metadata":{"name":"web","namespace":"default"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"web"}]}}}}"#;
//! # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::DEPLOYMENTS, &mizzen_sdk::Object::parse(web)?.0).await?;
//! use kube::api::DynamicObject;
//! use mizzen_sdk::Key;
//! use mizzen_sdk::discover::{Mapper, ScaleClient};
//! use mizzen_sdk::informer::Factory;
//!
//! let mapper = Mapper::new(client.clone());
//! let deployments = mapper.find("deploy").await?;
//! let informer = Factory::new(client.clone()).informer_of::<DynamicObject>(&deployments.resource, |_| {});
//! ScaleClient::new(client, mapper).set("deploy", &Key::new("default", "web"), 3).await?;
//! informer.start();
//! informer.wait_for_sync().await;
//! assert_eq!(informer.lister().namespaced("default").get("web")?.expect("it is there").data["spec"]["replicas"], 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Objects of unknown types are read and written by path, those of a [`Scheme`] by their apiVersion
//! and kind:
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use mizzen_sdk::discover::{self, Scheme};
//! use serde_json::json;
//!
//! let mut object = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}});
//! discover::set(&mut object, &["metadata", "name"], json!("web"))?;
//! assert_eq!(discover::get_str(&object, &["metadata", "name"])?, Some("web"));
//!
//! let mut scheme = Scheme::new();
//! scheme.register::<Pod>()?;
//! assert!(scheme.read(object.to_string().as_bytes())?.is::<Pod>());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod mapper;
mod scale;
mod scheme;
mod unstructured;

pub use mapper::{MapError, Mapper, Mapping};
pub use scale::{ScaleClient, ScaleError};
pub use scheme::{RegisterError, Scheme, SchemeError};
pub use unstructured::{
    FieldError, get, get_bool, get_f64, get_i64, get_list, get_map, get_null_coercing_str_map,
    get_number_as_f64, get_str, get_str_list, get_str_map, remove, set, set_str_list, set_str_map,
};
