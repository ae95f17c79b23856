//! Where are services? The variables that say so to every container, as far as they are about the API server itself.
//!
//! Kubernetes: a kubelet adds the services of the pod's namespace as well, unless `enableServiceLinks` is false. These are not
//! added here: it would take a watch of all services for variables that few programs read.

use std::time::Duration;

use mizzen_object::Str;
use mizzen_sdk::resource::SERVICES;
use mizzen_sdk::{Key, Object};
use tokio::time::sleep;

use crate::settings::Settings;

/// How long to wait until the Service is looked for again; twice as long after each further try.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Reads `default/kubernetes` once it is there, and never returns.
pub(crate) async fn read(settings: &Settings) {
    let mut pause = FIRST_PAUSE;
    loop {
        let api = settings.api_of(&settings.name(0));
        if let Ok(Some(service)) = api
            .find(&SERVICES, &Key::new("default", "kubernetes"))
            .await
        {
            let _ = settings.services.set(variables(&service));
            return std::future::pending().await;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Kubernetes: pkg/kubelet/envvars.
fn variables(service: &Object) -> Vec<(Str, Str)> {
    let address = service["spec"]["clusterIP"].str();
    let (upper, ports) = (
        |text: &str| text.replace('-', "_").to_uppercase(),
        service["spec"]["ports"].list(),
    );
    let prefix = upper(service.name());
    let mut variables = vec![(format!("{prefix}_SERVICE_HOST"), address.to_owned())];
    for (at, port) in ports.iter().enumerate() {
        let (number, protocol) = (port["port"].int(), port["protocol"].str());
        let protocol = if protocol.is_empty() { "TCP" } else { protocol };
        let host = if address.contains(':') {
            format!("[{address}]")
        } else {
            address.into()
        };
        let url = format!("{}://{host}:{number}", protocol.to_lowercase());
        if at == 0 {
            variables.push((format!("{prefix}_SERVICE_PORT"), number.to_string()));
            variables.push((format!("{prefix}_PORT"), url.clone()));
        }
        if !port["name"].is_empty() {
            variables.push((
                format!("{prefix}_SERVICE_PORT_{}", upper(port["name"].str())),
                number.to_string(),
            ));
        }
        let prefix = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
        variables.push((format!("{prefix}_PROTO"), protocol.to_lowercase()));
        variables.push((format!("{prefix}_PORT"), number.to_string()));
        variables.push((format!("{prefix}_ADDR"), address.into()));
        variables.push((prefix, url));
    }
    variables
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_said_as_a_kubelet_says_it() {
        let service = mizzen_object::value!({
            "metadata": { "name": "my-web", "namespace": "default" },
            "spec": { "clusterIP": "10.0.0.1", "ports": [{ "name": "http-s", "port": 443, "protocol": "TCP" }] },
        });
        let mut said: Vec<String> = variables(&Object(service))
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        said.sort_unstable();
        let expected = [
            "MY_WEB_PORT=tcp://10.0.0.1:443",
            "MY_WEB_PORT_443_TCP=tcp://10.0.0.1:443",
            "MY_WEB_PORT_443_TCP_ADDR=10.0.0.1",
            "MY_WEB_PORT_443_TCP_PORT=443",
            "MY_WEB_PORT_443_TCP_PROTO=tcp",
            "MY_WEB_SERVICE_HOST=10.0.0.1",
            "MY_WEB_SERVICE_PORT=443",
            "MY_WEB_SERVICE_PORT_HTTP_S=443",
        ];
        assert_eq!(said, expected);
    }
}
