//! The secure port of a component: address, TLS, authentication and authorization.
//!
//! Kubernetes: apiserver/pkg/server/options, SecureServingOptions, DelegatingAuthenticationOptions and
//! DelegatingAuthorizationOptions.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgAction, Args};
use mizzen_apiserver::ComponentHealth;
use mizzen_apiserver::delegate::Upstream;
use mizzen_authentication::{Authenticator, Authorities, TrustedAuthorities};
use mizzen_authorization::Authorizer;
use mizzen_bootstrap::pki::Signed;
use mizzen_registry::Registry;
use mizzen_value::Value;

use super::debug::DebugArgs;
use super::server::{ProxyHeaderArgs, TrustArgs};
use super::tls::{TlsArgs, argument};
use crate::component_server::{
    AlwaysAllowPaths, ComponentServer, ComponentStatus, ServingTls, bind, empty_registry,
};
use crate::compose::ComposeError;

/// The arguments of a secure port.
#[derive(Args)]
pub(super) struct SecureServingArgs {
    /// Serve /healthz, /livez, /readyz, /metrics, /configz, /statusz and /flagz over HTTPS at this port; 0 serves nothing
    /// [default: 10257 for controllers, 10259 for the scheduler, 10250 for nodes]
    #[arg(long, value_name = "N")]
    secure_port: Option<u16>,
    /// Listen on this address
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    bind_address: IpAddr,
    #[command(flatten)]
    tls: TlsArgs,
    /// Authenticate bearer tokens by TokenReviews with this kubeconfig, and read the client certificate authorities there;
    /// without it, tokens are rejected
    #[arg(long, value_name = "FILE")]
    authentication_kubeconfig: Option<PathBuf>,
    /// Do not read the client certificate authorities from the API server
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, action = ArgAction::Set)]
    authentication_skip_lookup: bool,
    /// Serve without client certificates if their authorities cannot be read from the API server [default: false for
    /// controllers, true for the scheduler]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    authentication_tolerate_lookup_failure: Option<bool>,
    /// Authorize requests by SubjectAccessReviews with this kubeconfig; without it, only system:masters is authorized
    #[arg(long, value_name = "FILE")]
    authorization_kubeconfig: Option<PathBuf>,
    /// Allow these paths without authorization; a trailing * matches any suffix
    #[arg(
        long,
        value_name = "PATH,…",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez"
    )]
    authorization_always_allow_paths: Vec<String>,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    proxy_headers: ProxyHeaderArgs,
    #[command(flatten)]
    debug: DebugArgs,
}

/// What differs between components.
pub(super) struct ServedComponent {
    /// The name of its certificate files in --cert-dir.
    pub name: &'static str,
    /// The default port, as upstream.
    pub port: u16,
    /// Whether it serves if the client certificate authorities cannot be read.
    pub tolerates_lookup_failure: bool,
    /// The health endpoints.
    pub health: ComponentHealth,
    /// What `/configz` shows.
    pub configuration: Value,
}

impl SecureServingArgs {
    /// Serves while the process runs, unless the port is 0.
    pub(super) async fn serve(
        &self,
        component: ServedComponent,
        status: &ComponentStatus,
    ) -> Result<(), ComposeError> {
        let port = self.secure_port.unwrap_or(component.port);
        if port == 0 {
            return Ok(());
        }
        let address = SocketAddr::new(self.bind_address, port);
        let listener = bind(address).await?;
        let registry = empty_registry();
        let authentication = upstream(self.authentication_kubeconfig.as_deref(), &registry)?;
        let authorization = upstream(self.authorization_kubeconfig.as_deref(), &registry)?;
        let published = self.published(authentication.as_ref(), &component).await?;
        let trust = self.trust.delegated(published.as_ref())?;
        let authorities = Authorities::new(&registry, &trust.trusted);
        trust.follow(&authorities);
        let allowed = AlwaysAllowPaths::new(&self.authorization_always_allow_paths)
            .map_err(|why| argument("--authorization-always-allow-paths", why))?;
        let mut authorizers: Vec<Arc<dyn Authorizer>> = vec![Arc::new(allowed)];
        authorizers.extend(authorization.map(|upstream| Arc::new(upstream) as Arc<dyn Authorizer>));
        let protocol = self.tls.protocol()?;
        let certificates = self.tls.certificates(
            &protocol,
            &Signed::self_signed(address.ip())?,
            component.name,
        )?;
        let server = ComponentServer {
            name: component.name,
            status: status.clone(),
            configuration: component.configuration,
            health: component.health,
            debug: self.debug.handler(),
            authenticator: authentication
                .map(|upstream| Arc::new(upstream) as Arc<dyn Authenticator>),
            authorizers,
            proxy_headers: self.proxy_headers.headers()?,
            max_streams: self.tls.max_streams(),
        };
        server.spawn(
            &registry,
            listener,
            ServingTls {
                authorities,
                protocol,
                certificates,
            },
        )?;
        tracing::info!(%address, "serving on the secure port");
        Ok(())
    }

    /// The client certificate authorities that the API server publishes; none without --authentication-kubeconfig.
    async fn published(
        &self,
        upstream: Option<&Upstream>,
        component: &ServedComponent,
    ) -> Result<Option<TrustedAuthorities>, ComposeError> {
        let Some(upstream) = upstream.filter(|_| !self.authentication_skip_lookup) else {
            return Ok(None);
        };
        let is_tolerated = self
            .authentication_tolerate_lookup_failure
            .unwrap_or(component.tolerates_lookup_failure);
        match upstream.trusted().await {
            Ok(trusted) => Ok(Some(trusted)),
            Err(error) if is_tolerated => {
                tracing::warn!(%error, "cannot read client certificate authorities, serving without client certificates");
                Ok(None)
            }
            Err(error) => Err(argument("--authentication-kubeconfig", error.to_string())),
        }
    }
}

fn upstream(file: Option<&Path>, registry: &Registry) -> Result<Option<Upstream>, ComposeError> {
    let load = |file: &Path| {
        let upstream = Upstream::load(file, registry);
        upstream.map_err(|error| argument(&file.display().to_string(), error.to_string()))
    };
    file.map(load).transpose()
}
