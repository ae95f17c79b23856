//! HTTP serving, its limits, and the advertised address.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use mizzen_apiserver::{Cors, Http};

use super::duration;
use crate::command::tls::{TlsArgs, argument};
use crate::compose::ComposeError;

/// The arguments of serving.
#[derive(Args, Clone)]
pub(crate) struct ServingArgs {
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Allow CORS requests of origins that match these regular expressions, such as //example\.com(:|$)
    #[arg(long, value_name = "EXPRESSION,…", value_delimiter = ',')]
    cors_allowed_origins: Vec<String>,
    /// Send these HSTS directives, such as max-age=31536000,includeSubDomains,preload
    #[arg(long, value_name = "DIRECTIVE,…", value_delimiter = ',')]
    strict_transport_security_directives: Vec<String>,
    /// Advertise this address in the Endpoints of the kubernetes Service [default: --bind-address; if that is a loopback or
    /// unspecified address, that of the default route]
    #[arg(long, value_name = "IP")]
    advertise_address: Option<IpAddr>,
    /// Reconcile the Endpoints of the kubernetes Service: lease and master-count advertise this server, none does not change
    /// them
    #[arg(long, value_name = "TYPE", default_value = "lease", value_parser = ["lease", "master-count", "none"])]
    endpoint_reconciler_type: String,
    /// Use this host, or host and port, in URLs of OpenID discovery and /api [default: the address that the server listens
    /// on]
    #[arg(long, value_name = "HOST")]
    pub external_hostname: Option<String>,
    /// Serve the files of /var/log at /logs (deprecated in Kubernetes)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, action = ArgAction::Set)]
    enable_logs_handler: bool,
    /// Send GOAWAY to HTTP/2 clients with this probability per request, at most 0.02
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    goaway_chance: f64,
    /// Time out requests that are not long-running after this time
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = duration)]
    request_timeout: Duration,
    /// End watches without a timeout after a random time between this many seconds and twice that
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    min_request_timeout: u32,
    /// Keep serving for this time after a stop signal, while /readyz fails
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub shutdown_delay_duration: Duration,
}

impl ServingArgs {
    /// The limits and headers of HTTP.
    pub(crate) fn http(&self) -> Result<Http, ComposeError> {
        let chance = self.goaway_chance;
        if !(0.0..=0.02).contains(&chance) {
            return Err(argument(
                "--goaway-chance",
                "can not be less than 0 or greater than 0.02".into(),
            ));
        }
        let cors = Cors::new(&self.cors_allowed_origins)
            .map_err(|why| argument("--cors-allowed-origins", why))?
            .with_transport_security(&self.strict_transport_security_directives)
            .map_err(|why| argument("--strict-transport-security-directives", why))?;
        Ok(Http {
            max_streams: self.tls.max_streams(),
            goaway_chance: chance,
            cors,
            ..Http::default()
        })
    }

    /// The advertised address of a server that listens on `bound`; none if it is a loopback address, which Endpoints may not
    /// name, or if the host has no other. Kubernetes: as `--advertise-address` (server/options/server_run_options.go).
    pub(crate) fn advertise_address(&self, bound: IpAddr) -> Option<IpAddr> {
        let public = self.public_address(bound);
        public.filter(|address| self.reconciles_endpoints() && !address.is_loopback())
    }

    /// The address under which a server that listens on `bound` is known; none if the host has only loopback addresses.
    pub(crate) fn public_address(&self, bound: IpAddr) -> Option<IpAddr> {
        let chosen = self
            .advertise_address
            .filter(|address| !address.is_unspecified());
        match chosen {
            Some(address) => Some(address),
            None if bound.is_unspecified() || bound.is_loopback() => host_address(),
            None => Some(bound),
        }
    }

    /// The directory whose files are served at `/logs`.
    pub(crate) fn log_directory(&self) -> Option<PathBuf> {
        self.enable_logs_handler.then(|| "/var/log".into())
    }

    /// Whether the Endpoints of the kubernetes Service are reconciled.
    pub(crate) fn reconciles_endpoints(&self) -> bool {
        self.endpoint_reconciler_type != "none"
    }

    /// The request timeout in seconds, at least one.
    pub(crate) fn request_timeout(&self) -> u64 {
        self.request_timeout.as_secs().max(1)
    }

    /// The minimum duration of a watch in seconds.
    pub(crate) fn min_request_timeout(&self) -> u64 {
        self.min_request_timeout.into()
    }
}

/// The address of the default route. Nothing is sent: connecting a datagram socket only selects a route.
fn host_address() -> Option<IpAddr> {
    const DOCUMENTATION: [(&str, &str); 2] =
        [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let routed = |(from, to): &(&str, &str)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    let is_usable = |address: &IpAddr| !address.is_loopback() && !address.is_unspecified();
    // Hosts without a default route: the kernel's table of local addresses, on Linux.
    let from_table = || local_address(&std::fs::read_to_string("/proc/net/fib_trie").ok()?);
    DOCUMENTATION
        .iter()
        .filter_map(routed)
        .find(is_usable)
        .or_else(from_table)
}

/// The first local address in the kernel's table that is not loopback. The line after an address has its type.
fn local_address(table: &str) -> Option<IpAddr> {
    let mut last = None;
    for line in table.lines() {
        if let Some(address) = line.trim_start().strip_prefix("|-- ") {
            last = address.trim().parse::<Ipv4Addr>().ok();
        } else if line.contains("/32 host LOCAL")
            && let Some(address) =
                last.filter(|address| !address.is_loopback() && !address.is_link_local())
        {
            return Some(address.into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_address_is_found_in_the_table() {
        let table = "  +-- 0.0.0.0/0\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.0.2.0\n        /24 link UNICAST\n     \
                     |-- 192.0.2.2\n        /32 host LOCAL\n";
        assert_eq!(local_address(table), Some([192, 0, 2, 2].into()));
        assert_eq!(
            local_address("     |-- 127.0.0.1\n        /32 host LOCAL\n"),
            None
        );
    }

    #[test]
    fn durations_are_written_as_in_go() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert!(duration("-1s").unwrap_err().contains("negative"));
        assert!(duration("soon").unwrap_err().contains("invalid duration"));
    }
}
