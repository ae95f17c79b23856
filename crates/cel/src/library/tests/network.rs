use super::check;

#[test]
fn a_url_has_parts() {
    check(
        r#"
        url('https://user:pa%20ss@example.com:8080/a b?k=v#frag').getEscapedPath() => "/a%20b"
        url('HTTP://Host.Example/x').getScheme() + '|' + url('HTTP://Host.Example/x').getHost() => "http|Host.Example"
        url('http://[fe80::1%25en0]:80/').getHost() => "[fe80::1%en0]:80"
        url('http://[fe80::1%25en0]:80/').getHostname() => "fe80::1%en0"
        url('https://h:/p').getHost() + '|' + url('https://h:/p').getPort() => "h:|"
        url('https://h:8443/p').getHostname() + '|' + url('https://h:8443/p').getPort() => "h|8443"
        url('mailto:joe@example.com').getHost() => ""
        url('foo:bar?x=1').getEscapedPath() => ""
        url('/path/to').getEscapedPath() => "/path/to"
        url('//host/path').getEscapedPath() => "/path"
        url('///x').getEscapedPath() => "///x"
        url('file:///x').getEscapedPath() => "/x"
        url('*').getEscapedPath() => "*"
        url('http://h/%2f%7e/a b/[x]').getEscapedPath() => "//~/a%20b/%5Bx%5D"
        url('http://h/%2f%7e/[x]').getEscapedPath() => "/%2f%7e/[x]"
        url('postgresql://a:1,b:2/x').getHost() => "a:1,b:2"
        url('https://h/p?a=1&a=2&b=%20+&c;d=1&=5&e&f=%zz').getQuery() => {"":["5"], "a":["1", "2"], "b":["  "], "e":[""]}
        url('https://h/p?a=1#f?b=2').getQuery() => {"a":["1"]}
        url('http://h/a') == url('HTTP://h/a') => true
        url('http://h/a') == url('http://h/a?') => false
        url('http://h/%61') == url('http://h/a') => false
        isURL('https://h/p') && isURL('/p') && !isURL('p') && !isURL('https://h/p#f%zz') => true
        "#,
    );
}

#[test]
fn an_invalid_url_has_gos_error() {
    let prefix = "error: URL parse error during conversion from string: parse";
    let table = r#"
        url('') => "": empty url
        url('relative') => "relative": invalid URI for request
        url('1http://h/') => "1http://h/": invalid URI for request
        url(':foo') => ":foo": missing protocol scheme
        url('http://[::1') => "http://[::1": missing ']' in host
        url('http://::1/') => "http://::1/": invalid port "::1" after host
        url('http://localhost:80:80/') => "http://localhost:80:80/": invalid port ":80:80" after host
        url('http://host:abc/') => "http://host:abc/": invalid port ":abc" after host
        url('http://[1.2.3.4]/') => "http://[1.2.3.4]/": invalid IP-literal
        url('http://a[::1]/') => "http://a[::1]/": invalid IP-literal
        url('http://[abc]/') => "http://[abc]/": invalid host: ParseAddr("abc"): unable to parse IP
        url('http://ho st/') => "http://ho st/": invalid character " " in host name
        url('http://h%zz/') => "http://h%zz/": invalid URL escape "%zz"
        url('http://h%41/') => "http://h%41/": invalid URL escape "%41"
        url('http://h/%z') => "http://h/%z": invalid URL escape "%z"
        url('http://us[er@h/') => "http://us[er@h/": net/url: invalid userinfo
        url('http://us%zzer@h/') => "http://us%zzer@h/": invalid URL escape "%zz"
        url('http://h/a\nb') => "http://h/a\nb": net/url: invalid control character in URL
        url('https://h/p#f%zz') => "https://h/p#f%zz": invalid URL escape "%zz"
    "#;
    check(&table.replace(" => ", &format!(" => {prefix} ")));
}

#[test]
fn addresses_are_classified() {
    check(
        r#"
        ip('1.2.3.4') => 1.2.3.4
        ip('2001:DB8::0001') => 2001:db8::1
        ip('::1.2.3.4') => ::102:304
        ip('1:2:3:4:5:6:1.2.3.4') => 1:2:3:4:5:6:102:304
        ip('1:2:3:4:5:6:7::') => 1:2:3:4:5:6:7:0
        string(ip('::')) => "::"
        ip('1.2.3.4').family() => 4
        ip('::1').family() => 6
        ip('::1') == ip('0::1') && ip('::1') != ip('1.2.3.4') => true
        ip.isCanonical('::1') && !ip.isCanonical('0::1') => true
        isIP('1.2.3.4') && !isIP('1.2.3') && !isIP('fe80::1%eth0') && !isIP('::ffff:1.2.3.4') => true
        ip('0.0.0.0').isUnspecified() && ip('::').isUnspecified() && !ip('::1').isUnspecified() => true
        ip('127.9.9.9').isLoopback() && ip('::1').isLoopback() && !ip('::2').isLoopback() => true
        ip('224.0.0.9').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast() => true
        ip('224.0.1.9').isLinkLocalMulticast() || ip('ff01::1').isLinkLocalMulticast() => false
        ip('169.254.1.1').isLinkLocalUnicast() && ip('fe80::1').isLinkLocalUnicast() => true
        ip('169.253.1.1').isLinkLocalUnicast() || ip('fec0::1').isLinkLocalUnicast() => false
        ip('10.0.0.1').isGlobalUnicast() && ip('2001:db8::1').isGlobalUnicast() => true
        ip('255.255.255.255').isGlobalUnicast() || ip('224.0.0.1').isGlobalUnicast() || ip('::1').isGlobalUnicast() => false
        type(ip('::1')) == net.IP => true
        "#,
    );
}

#[test]
fn a_block_contains_addresses_and_blocks() {
    check(
        r#"
        cidr('10.1.2.3/8') => 10.1.2.3/8
        cidr('2001:DB8::F/32').masked() => 2001:db8::/32
        cidr('10.1.2.3/8').ip() => 10.1.2.3
        cidr('10.1.2.3/8').prefixLength() => 8
        cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsIP(ip('10.1.2.3')) => true
        cidr('10.0.0.0/8').containsIP('11.1.2.3') || cidr('10.0.0.0/8').containsIP('::1') => false
        cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.0.0/16').containsCIDR('10.1.5.3/16') => true
        cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8')) || cidr('0.0.0.0/0').containsCIDR('::/0') => false
        cidr('10.1.0.0/16') == cidr('10.1.0.1/16') => false
        string(cidr('10.1.0.0/16')) => "10.1.0.0/16"
        isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0') && !isCIDR('::ffff:1.2.3.4/100') => true
        cidr('10.0.0.0/8').containsIP('x') => error: no such overload
        "#,
    );
}

#[test]
fn an_invalid_address_has_gos_error() {
    let table = r#"
        '' => unable to parse IP
        '%eth0' => missing IPv6 address
        '1.2.3' => IPv4 address too short
        '1.2.3.4.5' => IPv4 address too long
        '1.02.3.4' => IPv4 field has octet with leading zero
        '1.256.3.4' => IPv4 field has value >255
        '1..3.4' => IPv4 field must have at least one digit (at ".3.4")
        '.1.3.4' => IPv4 field must have at least one digit (at ".1.3.4")
        '1.3.4.' => IPv4 field must have at least one digit (at ".")
        '1.3.4.a' => unexpected character (at "a")
        'fe80::1%' => zone must be a non-empty string
        '1:2:3:4:5:1.2.3.4' => embedded IPv4 address must replace the final 2 fields of the address (at "1.2.3.4")
        '1::3:4:5:6:7:8:1.2.3.4' => too many hex fields to fit an embedded IPv4 at the end of the address (at "1.2.3.4")
        '1::3:4:5:6:7:1.2.3.4' => the :: must expand to at least one field of zeros
        '::1.2.3.400' => IPv4 field has value >255
        '12345::' => each group must have 4 or less digits (at "12345::")
        '::g' => each colon-separated field must have at least one digit (at "g")
        ':1' => each colon-separated field must have at least one digit (at ":1")
        '1:2' => address string too short
        '1:2:3:4:5:6:7:8:9' => trailing garbage after address (at "9")
        '1::2::3' => multiple :: in address (at ":3")
        '1:' => colon must be followed by more characters (at ":")
        '::1x' => unexpected character, want colon (at "x")
    "#;
    for line in table.lines().filter(|line| line.contains(" => ")) {
        let (text, why) = line.trim().split_once(" => ").unwrap();
        let quoted = text.replace('\'', "\"");
        let prefix = format!(
            "error: IP Address {quoted} parse error during conversion from string: ParseAddr({quoted}):"
        );
        check(&format!("ip({text}) => {prefix} {why}"));
    }
    check(
        r#"
        ip('fe80::1%eth0') => error: IP address "fe80::1%eth0" with zone value is not allowed
        ip('::ffff:1.2.3.4') => error: IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed
        cidr('::ffff:1.2.3.4/100') => error: network address parse error during conversion from string: IPv4-mapped IPv6 address "::ffff:1.2.3.4/100" is not allowed
        "#,
    );
}

#[test]
fn an_invalid_cidr_block_has_gos_error() {
    let twice = "network address parse error during conversion from string: ".repeat(2);
    let table = r#"
        1.2.3.4 => no '/'
        1.2.3.4/33 => prefix length out of range
        1.2.3.4/024 => bad bits after slash: "024"
        1.2.3.4/+2 => bad bits after slash: "+2"
        1.2.3.4/ => bad bits after slash: ""
        1.2.3.4/99999999999999999999999 => bad bits after slash: "99999999999999999999999"
        1.2.3/8 => ParseAddr("1.2.3"): IPv4 address too short
        fe80::1%e/8 => IPv6 zones cannot be present in a prefix
    "#;
    for line in table.lines().filter(|line| line.contains(" => ")) {
        let (text, why) = line.trim().split_once(" => ").unwrap();
        check(&format!(
            "cidr('{text}') => error: {twice}netip.ParsePrefix(\"{text}\"): {why}"
        ));
        check(&format!(
            "cidr('::/0').containsCIDR('{text}') => error: {twice}netip.ParsePrefix(\"{text}\"): {why}"
        ));
    }
}
