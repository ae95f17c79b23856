//! The DNS configuration of pods (upstream: pkg/kubelet/network/dns).
//!
//! Without a cluster DNS, `ClusterFirst` is `Default`: the resolver of the machine. `dnsConfig` is
//! added to it.

use mizzen_cri::messages::DnsConfig;
use mizzen_value::Value;

/// The resolver of the machine.
pub(super) const RESOLVER: &str = "/etc/resolv.conf";
/// Kubernetes: the most name servers and search domains (pkg/apis/core/validation).
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;

/// The configuration of a pod; `None` for that of the machine as it is.
pub(super) fn dns(spec: &Value, machine: &str) -> Option<DnsConfig> {
    let own = &spec["dnsConfig"];
    let mut dns = match spec["dnsPolicy"].str() {
        "None" => DnsConfig::default(),
        _ if own.is_null() => return None,
        _ => parse(machine),
    };
    let texts = |field: &str| {
        let list = own[field].list().iter();
        list.map(|text| text.str().to_owned())
    };
    dns.servers.extend(texts("nameservers"));
    dns.searches.extend(texts("searches"));
    for option in own["options"].list() {
        let name = option["name"].str();
        // An option of the pod replaces that of the machine.
        dns.options
            .retain(|known| known.split(':').next() != Some(name));
        dns.options.push(match option["value"].str() {
            "" => name.to_owned(),
            value => format!("{name}:{value}"),
        });
    }
    dns.servers = distinct(dns.servers, MAX_SERVERS);
    dns.searches = distinct(dns.searches, MAX_SEARCHES);
    Some(dns)
}

/// The first values, each once.
fn distinct(values: Vec<String>, most: usize) -> Vec<String> {
    let mut known: Vec<String> = Vec::new();
    for value in values {
        if !known.contains(&value) {
            known.push(value);
        }
    }
    known.truncate(most);
    known
}

/// Parses a resolv.conf.
fn parse(text: &str) -> DnsConfig {
    let mut dns = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or_default();
        let words = words.map(str::to_owned);
        match key {
            "nameserver" => dns.servers.extend(words.take(1)),
            // The last line counts.
            "search" => dns.searches = words.collect(),
            "options" => dns.options.extend(words),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    const MACHINE: &str =
        "# made by hand\nnameserver 10.0.0.1\nsearch a.test b.test\noptions ndots:1 rotate\n";

    #[track_caller]
    fn check(spec: &str, expected: &str) {
        let made = dns(&json::parse(spec.as_bytes()).unwrap(), MACHINE);
        let shown = made.map(|dns| {
            [dns.servers, dns.searches, dns.options]
                .map(|list| list.join(" "))
                .join(" | ")
        });
        assert_eq!(shown.unwrap_or_default(), expected, "{spec}");
    }

    #[test]
    fn a_configuration_is_added_to_that_of_the_machine_or_replaces_it() {
        check(r#"{"dnsPolicy":"ClusterFirst"}"#, "");
        check(r#"{"dnsPolicy":"Default"}"#, "");
        let own = r#"{"nameservers":["10.0.0.1","10.0.0.2"],"searches":["c.test"],"options":[{"name":"ndots","value":"5"},{"name":"debug"}]}"#;
        check(
            &format!(r#"{{"dnsPolicy":"ClusterFirst","dnsConfig":{own}}}"#),
            "10.0.0.1 10.0.0.2 | a.test b.test c.test | rotate ndots:5 debug",
        );
        check(
            &format!(r#"{{"dnsPolicy":"None","dnsConfig":{own}}}"#),
            "10.0.0.1 10.0.0.2 | c.test | ndots:5 debug",
        );
    }
}
