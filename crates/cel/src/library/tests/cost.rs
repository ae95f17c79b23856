//! Runtime and estimated costs of expressions.

use std::sync::Arc;

use super::{ReadAuthorizer, environment};
use crate::library::authorizer;
use crate::{AstNode, CostRange, EvalLimits, SizeEstimator, Type};

/// Each line: an expression, its minimum and maximum estimate, and its runtime cost.
#[track_caller]
fn check(table: &str) {
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (expression, _) = line.rsplit_once(" => ").expect("a line has an arrow");
        let program = environment().compile(expression).expect(expression);
        let CostRange { min, max } = program.estimate(&Short);
        let variables = [("authorizer", authorizer(Arc::new(ReadAuthorizer)))];
        let cost = program
            .evaluate(
                &variables,
                EvalLimits {
                    cost: u64::MAX,
                    interrupted: None,
                },
            )
            .cost;
        expected.push(line.to_owned());
        found.push(format!("{expression} => {min} {max} {cost}"));
    }
    assert_eq!(found.join("\n"), expected.join("\n"));
}

/// No string is longer than twelve characters.
struct Short;

impl SizeEstimator for Short {
    fn size(&self, node: &AstNode) -> Option<CostRange> {
        matches!(node.kind, Type::String | Type::Bytes).then_some(CostRange { min: 0, max: 12 })
    }
}

#[test]
fn text_costs_by_its_length() {
    check(
        r#"
        'ABCDEFGHIJ abcdefghij'.lowerAscii() => 3 3 3
        'ABCDEFGHIJ abcdefghij'.lowerAscii() == 'abcdefghij ABCDEFGHIJ'.lowerAscii() => 7 9 9
        'ABCDEFGHIJ abcdefghij'.upperAscii() => 3 3 3
        strings.quote('ABCDEFGHIJ abcdefghij') => 3 3 3
        strings.quote('ABCDEFGHIJ abcdefghij') == strings.quote('ABCDEFGHIJ abcdefghij') => 7 11 9
        'abc 123 def 123'.replace('123', '456') => 3 3 3
        'abc 123 def 123'.replace('123', '456', 1) => 3 3 3
        'abc 123 def 123'.split(' ', 1) => 3 3 3
        'abc 123 def 123'.substring(5, 8) => 2 2 2
        '  abc 123 def 123  '.trim() => 2 2 2
        ['aa', 'bb', 'cc', 'd', 'e', 'f', 'g', 'h', 'i', 'j'].join(' ') => 11 23 5
        ['aa', 'bb', 'cc', 'd', 'e', 'f', 'g', 'h', 'i', 'j'].join() => 10 22 3
        'abc 123 def 123'.find('123') => 2 2 2
        'abc 123 def 123'.findAll('123', 1) => 2 2 2
        'abc'.charAt(1) => 1 1 1
        '%s %s'.format(['a', 'b']) => 11 11 1
        jsonpatch.escapeKey('abc/def~ abc/def~') => 2 2 2
        '01234567890123456789012345678901234567890123456789'.indexOf('123') => 5 5 5
        "#,
    );
}

#[test]
fn lists_cost_by_their_items() {
    check(
        r#"
        [1, 2, 3, 4, 5].sum() => 15 15 5
        [1, 2, 3, 4, 5].isSorted() => 15 15 5
        ['012345678901', '012345678901', '012345678901', '012345678901', '012345678901'].max() => 15 25 5
        [1, 2, 3, 4, 5].indexOf(3) => 15 15 5
        ['012345678901', '012345678901', '012345678901', '012345678901', '012345678901'].lastIndexOf('x') => 15 25 5
        sets.contains([1, 2, 3, 4], [2, 3]) => 29 29 9
        sets.equivalent([1, 2, 3], [3, 2, 1]) => 39 39 19
        sets.intersects([1], [1, 1]) => 23 23 3
        [3, 1, 2].sort() => 39 39 29
        ['b', 'a'].sort() => 30 30 19
        lists.range(3) => 14 14 14
        [1, 2, 3].slice(0, 2) => 23 23 13
        [[1], [2]].flatten() => 43 43 13
        [1, 2].reverse() => 23 23 13
        [1, 2].distinct() => 29 29 19
        "#,
    );
}

#[test]
fn values_of_libraries_cost_their_reading() {
    check(
        r#"
        url('https:://kubernetes.io/').getScheme() => 4 4 4
        url('https:://kubernetes.io/') == url('https:://kubernetes.io/') => 7 9 7
        url('https:://kubernetes.io/') == url('http://x.b') => 5 5 5
        ip('192.168.0.1').family() => 3 3 3
        ip('192.168.0.1') == ip('192.168.0.1') => 5 5 5
        ip('2001:db8:3333:4444:5555:6666:7777:8888') => 4 4 4
        ip.isCanonical('2001:db8:3333:4444:5555:6666:7777:8888') => 8 8 8
        cidr('192.168.0.0/16').ip() => 3 3 3
        cidr('192.168.0.0/16') == cidr('2001:db8::/32') => 5 5 5
        cidr('192.168.0.0/16').containsCIDR(cidr('192.0.0.0/30')) => 7 11 7
        cidr('192.168.0.0/16').containsCIDR('192.0.0.0/30') => 7 11 7
        cidr('192.168.0.0/16').containsIP('192.169.0.1') => 5 8 5
        cidr('2001:db8::/32').containsIP(ip('2001:db8:3333:4444:5555:6666:7777:8888')) => 7 10 7
        semver("1234.56789012345.67890123456789") => 4 4 4
        semver("1.0.0").compareTo(semver("1.2.3")) => 3 3 3
        quantity("12Mi") => 1 1 1
        quantity("200M") == quantity("200M") => 3 3 3
        quantity("200M") == quantity("0.2G") && quantity("0.2G") == quantity("200M") => 3 6 6
        quantity("50k").add(20).sub(quantity("100k")).asInteger() > 0 => 6 6 6
        format.named("dns1123subdomain") => 1 1 1
        format.named("dns1123Subdomain").value().validate("my-name") => 34 34 17
        format.named("dns1123Label").value().validate("my-name") => 34 34 10
        format.named("dns1123Label").value() == format.named("dns1123Label").value() => 5 11 5
        authorizer.path('/healthz') => 2 2 2
        authorizer.group('apps').resource('deployments').subresource('status').namespace('test').name('backend') => 6 6 6
        authorizer.group('').resource('pods').fieldSelector('spec.nodeName=example-node-name.fully.qualified.domain.name.example.com') => 1821 1821 1821
        authorizer.path('/healthz').check('get').allowed() => 350003 350003 350003
        "#,
    );
}

#[test]
fn loops_over_pairs_cost_their_steps() {
    check(
        r#"
        {'a': 1, 'b': 2}.all(k, v, v > 0) => 37 41 11
        {'a': 1, 'b': 2}.exists(k, v, v > 0) => 39 43 10
        {'a': 1, 'b': 2}.existsOne(k, v, v > 0) => 38 40 10
        {'a': 1, 'b': 2}.transformMap(k, v, v + 1) => 71 71 11
        {'a': 1, 'b': 2}.transformMap(k, v, v < 5, v + 1) => 67 75 15
        {'a': 1, 'b': 2}.transformMapEntry(k, v, {k: v + 1}) => 131 131 71
        {'a': 1, 'b': 2}.transformMapEntry(k, v, v < 5, {k: v + 1}) => 67 135 75
        [1, 2].all(i, v, v > 0) => 17 21 11
        [1, 2].transformList(i, v, v + 1) => 49 49 29
        [1, 2].transformList(i, v, v < 5, v + 1) => 27 53 33
        "#,
    );
}
