//! Derived conversions, schemes, and the conversion webhook that a scheme is.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::core::crd::merge_crds;
use kube::{CustomResource, CustomResourceExt as _};
use mizzen_sdk::Object;
use mizzen_sdk::convert::{Convert, ConvertError, ConvertTo, check_round_trip_of};
use mizzen_sdk::discover::{RegisterError, Scheme, SchemeError};
use mizzen_sdk::webhook::{CertificateRotator, Endpoint, RotationOptions, Server};
use mizzen_testing::Cluster;
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

mod v2 {
    use super::*;

    #[derive(
        CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq,
    )]
    #[kube(group = "shop.example.com", version = "v2", kind = "Oven", namespaced)]
    #[kube(status = "OvenStatus", derive = "PartialEq", derive = "Default")]
    #[serde(rename_all = "camelCase")]
    pub(crate) struct OvenSpec {
        pub(crate) heat: u32,
        pub(crate) fuel: Fuel,
        #[serde(default)]
        pub(crate) racks: Vec<Rack>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub(crate) zones: BTreeMap<String, Rack>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) door: Option<Box<Rack>>,
    }

    #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
    pub(crate) struct OvenStatus {
        pub(crate) hot: bool,
    }

    #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
    pub(crate) struct Rack {
        /// In millimetres.
        pub(crate) width: u32,
    }

    #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
    pub(crate) enum Fuel {
        #[default]
        Wood,
        Electricity,
    }
}

mod v1 {
    use super::*;

    #[derive(
        CustomResource, Convert, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq,
    )]
    #[kube(group = "shop.example.com", version = "v1", kind = "Oven", namespaced)]
    #[kube(status = "OvenStatus", derive = "PartialEq", derive = "Convert")]
    #[kube(attr = "convert(hub = super::v2::Oven, round_trip)")]
    #[convert(hub = super::v2::OvenSpec)]
    #[serde(rename_all = "camelCase")]
    pub(crate) struct OvenSpec {
        #[convert(rename = "heat")]
        pub(crate) temperature: u32,
        pub(crate) fuel: Fuel,
        #[serde(default)]
        pub(crate) racks: Vec<Rack>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub(crate) zones: BTreeMap<String, Rack>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) door: Option<Box<Rack>>,
    }

    #[derive(Convert, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
    #[convert(hub = super::v2::OvenStatus)]
    pub(crate) struct OvenStatus {
        pub(crate) hot: bool,
    }

    #[derive(Convert, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
    #[convert(hub = super::v2::Rack)]
    pub(crate) struct Rack {
        /// As text, such as `40mm`.
        #[convert(with = "millimetres")]
        #[schemars(regex(pattern = "^[1-9][0-9]{0,3}mm$"))]
        pub(crate) width: String,
    }

    mod millimetres {
        use super::ConvertError;

        pub(super) fn to_hub(text: String) -> Result<u32, ConvertError> {
            text.trim_end_matches("mm")
                .parse()
                .map_err(ConvertError::new)
        }

        pub(super) fn from_hub(width: u32) -> Result<String, ConvertError> {
            Ok(format!("{width}mm"))
        }
    }

    #[derive(Convert, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
    #[convert(hub = super::v2::Fuel)]
    pub(crate) enum Fuel {
        Wood,
        #[convert(rename = "Electricity")]
        Power,
    }
}

fn oven(width: &str) -> v1::Oven {
    let rack = v1::Rack {
        width: width.into(),
    };
    v1::Oven::new(
        "big",
        v1::OvenSpec {
            temperature: 300,
            fuel: v1::Fuel::Power,
            racks: vec![
                v1::Rack {
                    width: "1mm".into(),
                },
                rack.clone(),
            ],
            zones: BTreeMap::from([("back".into(), rack.clone())]),
            door: Some(Box::new(rack)),
        },
    )
}

#[test]
fn fields_variants_and_containers_are_converted_in_both_directions() {
    let hub: v2::Oven = oven("40mm").convert_to().unwrap();
    let rack = v2::Rack { width: 40 };
    assert_eq!(
        hub.spec,
        v2::OvenSpec {
            heat: 300,
            fuel: v2::Fuel::Electricity,
            racks: vec![v2::Rack { width: 1 }, rack.clone()],
            zones: BTreeMap::from([("back".into(), rack.clone())]),
            door: Some(Box::new(rack)),
        }
    );
    let back: v1::Oven = hub.convert_to().unwrap();
    assert_eq!(back, oven("40mm"));
}

#[test]
fn an_error_names_the_path_of_the_field() {
    let error = ConvertTo::<v2::Oven>::convert_to(oven("wide")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "spec.racks[1].width: invalid digit found in string"
    );
}

#[derive(Clone, Debug, Serialize, Default, PartialEq)]
struct Wide {
    both: u32,
    only_hub: u32,
    total: u32,
}

#[derive(Clone, Debug, Serialize, PartialEq, Convert)]
#[convert(hub = Wide, hub_default, rest = "rest")]
struct Narrow {
    both: u32,
    #[convert(skip)]
    only_spoke: u32,
    #[convert(default = "seven")]
    also_only_spoke: u32,
}

fn seven() -> u32 {
    7
}

mod rest {
    use super::{ConvertError, Narrow, Wide};

    pub(super) fn to_hub(from: &Narrow, hub: &mut Wide) -> Result<(), ConvertError> {
        hub.total = from.both + from.only_spoke;
        Ok(())
    }

    pub(super) fn from_hub(hub: &Wide, to: &mut Narrow) -> Result<(), ConvertError> {
        to.only_spoke = hub
            .total
            .checked_sub(hub.both)
            .ok_or_else(|| ConvertError::new("too small").at("total"))?;
        Ok(())
    }
}

#[test]
fn fields_of_one_side_get_defaults_and_the_rest_is_written_by_hand() {
    let narrow = Narrow {
        both: 1,
        only_spoke: 2,
        also_only_spoke: 3,
    };
    let wide: Wide = narrow.convert_to().unwrap();
    assert_eq!(
        wide,
        Wide {
            both: 1,
            only_hub: 0,
            total: 3
        }
    );
    let back: Narrow = wide.convert_to().unwrap();
    assert_eq!(
        back,
        Narrow {
            both: 1,
            only_spoke: 2,
            also_only_spoke: 7
        }
    );
    let error = ConvertTo::<Narrow>::convert_to(Wide {
        both: 1,
        ..Wide::default()
    })
    .unwrap_err();
    assert_eq!(error.to_string(), "total: too small");
}

#[test]
#[should_panic(expected = r#"{"op":"replace","path":"/also_only_spoke","value":7}]"#)]
fn a_round_trip_reports_what_is_lost() {
    let values = (0..9u32).prop_map(|also_only_spoke| Narrow {
        both: 1,
        only_spoke: 2,
        also_only_spoke,
    });
    check_round_trip_of::<Narrow, Wide>(&values);
}

#[derive(Convert, Clone, Debug, PartialEq)]
#[convert(hub = Shape)]
enum OldShape {
    Point,
    Circle {
        #[convert(rename = "radius")]
        size: u32,
        #[convert(skip)]
        note: String,
    },
    Pair(u32, Option<u32>),
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Point,
    Circle { radius: u32 },
    Pair(u32, Option<u32>),
}

#[test]
fn variants_with_fields_are_converted() {
    for (old, new) in [
        (OldShape::Point, Shape::Point),
        (
            OldShape::Circle {
                size: 1,
                note: String::new(),
            },
            Shape::Circle { radius: 1 },
        ),
        (OldShape::Pair(1, Some(2)), Shape::Pair(1, Some(2))),
    ] {
        assert_eq!(ConvertTo::<Shape>::convert_to(old.clone()), Ok(new.clone()));
        assert_eq!(ConvertTo::<OldShape>::convert_to(new), Ok(old));
    }
}

fn scheme() -> Scheme {
    let mut scheme = Scheme::new();
    scheme.register_conversion::<v1::Oven, v2::Oven>().unwrap();
    scheme
}

#[test]
fn a_scheme_converts_between_registered_versions() {
    let scheme = scheme();
    let text = serde_json::to_vec(&oven("40mm")).unwrap();
    let object = Object::parse(&text).unwrap();
    let hub = scheme.convert(&object, "shop.example.com/v2").unwrap();
    assert_eq!(
        (hub["apiVersion"].str(), hub["kind"].str()),
        ("shop.example.com/v2", "Oven")
    );
    assert_eq!(hub["spec"]["racks"][1]["width"].int(), 40);
    let back = scheme.convert(&hub, "shop.example.com/v1").unwrap();
    assert_eq!(back["spec"], object["spec"]);
    let error = scheme.convert(&hub, "shop.example.com/v3").unwrap_err();
    assert!(matches!(error, SchemeError::NoConversion { .. }));
    let message = "no conversion of kind \"Oven\" from \"shop.example.com/v2\" to \"shop.example.com/v3\" is registered";
    assert_eq!(error.to_string(), message);
}

#[test]
fn a_kind_has_one_hub() {
    let mut scheme = scheme();
    let error = scheme
        .register_conversion::<v2::Oven, v1::Oven>()
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, RegisterError::AnotherHub { .. }), "{error}");
}

#[test]
fn defaults_are_applied_in_order() {
    let mut scheme = Scheme::new();
    scheme
        .register_defaults(|oven: &mut v2::Oven| oven.spec.heat = 1)
        .unwrap();
    scheme
        .register_defaults(|oven: &mut v2::Oven| oven.spec.heat += 1)
        .unwrap();
    let mut oven = v2::Oven::default();
    scheme.apply_defaults(&mut oven);
    assert_eq!(oven.spec.heat, 2);
    let mut other = self::oven("1mm");
    scheme.apply_defaults(&mut other);
    assert_eq!(other, self::oven("1mm"), "it has no defaults");
}

#[tokio::test]
async fn a_scheme_is_the_conversion_webhook_of_a_definition() {
    let cluster = Cluster::builder()
        .server_only()
        .without_bootstrap()
        .real_time()
        .start()
        .await;
    let client = cluster.client();
    let definition = merge_crds(vec![v1::Oven::crd(), v2::Oven::crd()], "v2").unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap();

    let name = "ovens.shop.example.com";
    let server = Server::builder("shop")
        .conversion(name, scheme().converter())
        .build()
        .unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = Endpoint::Url(format!("https://{}", listener.local_addr().unwrap()));
    let options = RotationOptions::new("default", "webhook", endpoint.names());
    let rotator = CertificateRotator::start(client.clone(), options)
        .await
        .unwrap();
    let (serving, certificate) = (server.clone(), rotator.certificate());
    tokio::spawn(async move {
        serving
            .serve(
                listener,
                certificate,
                std::future::pending(),
                Duration::ZERO,
            )
            .await;
    });
    server
        .apply(&client, &endpoint, &rotator.bundle())
        .await
        .unwrap();

    let old: Api<v1::Oven> = Api::namespaced(client.clone(), "default");
    let new: Api<v2::Oven> = Api::namespaced(client, "default");
    old.create(&PostParams::default(), &oven("40mm"))
        .await
        .unwrap();
    let read = new.get("big").await.unwrap();
    assert_eq!((read.spec.heat, read.spec.racks[1].width), (300, 40));
    assert_eq!(old.get("big").await.unwrap().spec, oven("40mm").spec);
}
