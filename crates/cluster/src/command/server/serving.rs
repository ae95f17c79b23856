//! How the server is reached: HTTP, its limits, and the address that is advertised.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use mizzen_apiserver::{Browsers, Http};
use mizzen_value::time::duration_nanos;

use crate::command::tls::{TlsArgs, argument};
use crate::compose::ComposeError;

/// The arguments of serving.
#[derive(Args, Clone)]
pub(crate) struct ServingArgs {
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Pages of these origins may use the server from a browser: regular expressions such as //example\.com(:|$)
    #[arg(long, value_name = "EXPRESSION,…", value_delimiter = ',')]
    cors_allowed_origins: Vec<String>,
    /// What browsers are told of TLS, such as max-age=31536000,includeSubDomains,preload
    #[arg(long, value_name = "DIRECTIVE,…", value_delimiter = ',')]
    strict_transport_security_directives: Vec<String>,
    /// The address that the Endpoints of the kubernetes Service name [default: --bind-address; if that is a loopback or
    /// unspecified address, the one that the host uses for its default route]
    #[arg(long, value_name = "IP")]
    advertise_address: Option<IpAddr>,
    /// How the Endpoints of the kubernetes Service are reconciled: lease and master-count name this server, none leaves them
    /// alone
    #[arg(long, value_name = "TYPE", default_value = "lease", value_parser = ["lease", "master-count", "none"])]
    endpoint_reconciler_type: String,
    /// The host, or host and port, in the URLs that clients are given: OpenID discovery and /api [default: the address that
    /// the server listens on]
    #[arg(long, value_name = "HOST")]
    pub external_hostname: Option<String>,
    /// Serve the files of /var/log at /logs to those who are authorized. Deprecated in Kubernetes
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, action = ArgAction::Set)]
    enable_logs_handler: bool,
    /// The part of requests, at most 0.02, after which an HTTP/2 client is asked to connect anew
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    goaway_chance: f64,
    /// How long a request may take that is no watch
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = duration)]
    request_timeout: Duration,
    /// How many seconds a watch lasts at least, and at most twice that, unless its client says
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    min_request_timeout: u32,
    /// How long the server goes on as before, but says that it is not ready, when it is told to stop
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub shutdown_delay_duration: Duration,
}

impl ServingArgs {
    /// How HTTP is spoken.
    pub(crate) fn http(&self) -> Result<Http, ComposeError> {
        let chance = self.goaway_chance;
        if !(0.0..=0.02).contains(&chance) {
            return Err(argument(
                "--goaway-chance",
                "can not be less than 0 or greater than 0.02".into(),
            ));
        }
        let browsers = Browsers::of_origins(&self.cors_allowed_origins)
            .map_err(|why| argument("--cors-allowed-origins", why))?
            .with_transport_security(&self.strict_transport_security_directives)
            .map_err(|why| argument("--strict-transport-security-directives", why))?;
        Ok(Http {
            max_streams: self.tls.max_streams(),
            goaway_chance: chance,
            browsers,
            ..Http::default()
        })
    }

    /// The address at which the server says that it is reached, when it listens on `bound`; none if the machine has no
    /// address that Endpoints may name. Kubernetes: as `--advertise-address` (server/options/server_run_options.go).
    pub(crate) fn advertise_address(&self, bound: IpAddr) -> Result<Option<IpAddr>, ComposeError> {
        if !self.reconciles_endpoints() {
            return Ok(None);
        }
        if let Some(address) = self
            .advertise_address
            .filter(|address| !address.is_unspecified())
        {
            let why = || format!("{address} is a loopback address, which Endpoints may not name");
            return match address.is_loopback() {
                true => Err(argument("--advertise-address", why())),
                false => Ok(Some(address)),
            };
        }
        let is_own = !bound.is_unspecified() && !bound.is_loopback();
        Ok(if is_own { Some(bound) } else { host_address() })
    }

    /// The directory whose files are served at `/logs`.
    pub(crate) fn log_directory(&self) -> Option<PathBuf> {
        self.enable_logs_handler.then(|| "/var/log".into())
    }

    /// Whether the Endpoints of the kubernetes Service name this server.
    pub(crate) fn reconciles_endpoints(&self) -> bool {
        self.endpoint_reconciler_type != "none"
    }

    /// Seconds after which a request is given up; at least one.
    pub(crate) fn request_timeout(&self) -> u64 {
        self.request_timeout.as_secs().max(1)
    }

    /// Seconds that a watch lasts at least.
    pub(crate) fn min_request_timeout(&self) -> u64 {
        self.min_request_timeout.into()
    }
}

/// The address from which this host would reach others. Nothing is sent: connecting a datagram socket only chooses a route.
fn host_address() -> Option<IpAddr> {
    const NOWHERE: [(&str, &str); 2] =
        [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let routed = |(from, to): &(&str, &str)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    let is_good = |address: &IpAddr| !address.is_loopback() && !address.is_unspecified();
    NOWHERE
        .iter()
        .filter_map(routed)
        .find(is_good)
        .or_else(interface_address)
}

/// The first address that the kernel calls local and that is no loopback, for hosts without a default route. Linux only.
fn interface_address() -> Option<IpAddr> {
    local_address(&std::fs::read_to_string("/proc/net/fib_trie").ok()?)
}

/// In the kernel's table an address is followed by a line that says what it is.
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

/// A span of time as Go writes it.
fn duration(text: &str) -> Result<Duration, String> {
    let nanos = duration_nanos(text).map_err(|error| error.to_string())?;
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| "can not be negative value".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_address_that_is_no_loopback_is_found() {
        let table = "  +-- 0.0.0.0/0\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.0.2.0\n        /24 link UNICAST\n     \
                     |-- 192.0.2.2\n        /32 host LOCAL\n";
        assert_eq!(local_address(table), Some([192, 0, 2, 2].into()));
        assert_eq!(
            local_address("     |-- 127.0.0.1\n        /32 host LOCAL\n"),
            None
        );
    }

    #[test]
    fn a_span_is_written_as_in_go() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert!(duration("-1s").unwrap_err().contains("negative"));
        assert!(duration("soon").unwrap_err().contains("invalid duration"));
    }
}
