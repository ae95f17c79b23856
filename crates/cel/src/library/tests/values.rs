use super::check;

#[test]
fn quantities_are_compared_and_added() {
    check(
        r#"
        quantity('50k').add(20) == quantity('50020') => true
        quantity('1.0') == quantity('1') && quantity('200M') == quantity('0.2G') => true
        quantity('50Mi').isGreaterThan(quantity('50M')) && !quantity('50M').isGreaterThan(quantity('50M')) => true
        quantity('50M').isLessThan(quantity('50Mi')) => true
        quantity('200M').compareTo(quantity('0.3G')) => -1
        sign(quantity('-10Mi')) => -1
        sign(quantity('0')) => 0
        quantity('5').add(6).asInteger() => 11
        quantity('50k').sub(quantity('20')).asInteger() => 49980
        quantity('-5').sub(7).asInteger() => -12
        quantity('50.703k').asApproximateFloat() => 50703
        quantity('0.1').asApproximateFloat() => 0.1
        isQuantity('20M') && isQuantity('1e400') && !isQuantity('20Mo') && !isQuantity(' 5') => true
        quantity('10x') => error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
        quantity('10mm') => error: unable to parse quantity's suffix
        quantity('1.5').asInteger() => error: cannot convert value to integer
        quantity('1e30').asInteger() => error: cannot convert value to integer
        "#,
    );
}

#[test]
fn a_quantity_is_an_integer_by_its_notation() {
    let whole = [
        "123456789012345678",
        "10000Gi",
        "1k",
        "1.5k",
        "1e18",
        "1E",
        "0",
        ".",
        "+",
        "000000000000000000000005",
    ];
    let fraction = [
        "1234567890123456789",
        "100000Gi",
        "1000m",
        "5.0",
        "5.0Mi",
        "10E",
        "1e-20",
    ];
    whole
        .iter()
        .for_each(|text| check(&format!("quantity('{text}').isInteger() => true")));
    fraction
        .iter()
        .for_each(|text| check(&format!("quantity('{text}').isInteger() => false")));
    check(
        r#"
        quantity('0').add(quantity('1000m')).isInteger() => false
        quantity('9e18').add(quantity('9e18')).isInteger() => false
        quantity('9223372036854775807').add(1).isInteger() => false
        quantity('0.5').add(quantity('0.5')).isInteger() => false
        "#,
    );
}

#[test]
fn versions_have_an_order() {
    check(
        r#"
        semver('1.2.3').isGreaterThan(semver('1.2.3-beta')) => true
        semver('1.2.3-beta').isLessThan(semver('1.2.3-beta.1')) => true
        semver('1.2.3-2').isLessThan(semver('1.2.3-10')) && semver('1.2.3-10').isLessThan(semver('1.2.3-a')) => true
        semver('1.2.3+a') == semver('1.2.3+b') => true
        semver('1.10.0').compareTo(semver('1.9.0')) => 1
        semver('1.2.3').major() + semver('1.2.3').minor() * 10 + semver('1.2.3').patch() * 100 => 321
        semver('v01.2', true).compareTo(semver('1.2.0')) => 0
        semver('1.2.03-a', true).patch() => 3
        semver('18446744073709551615.2.3').major() => -1
        isSemver('1.2.3') && !isSemver('v1.2.3') && isSemver('v1', true) && !isSemver('1', false) => true
        semver('') => error: Version string empty
        semver('1.2') => error: No Major.Minor.Patch elements found
        semver('a.2.3') => error: Invalid character(s) found in major number "a"
        semver('1.02.3') => error: Minor number must not contain leading zeroes "02"
        semver('1.2.x') => error: Invalid character(s) found in patch number "x"
        semver('.2.3') => error: strconv.ParseUint: parsing "": invalid syntax
        semver('99999999999999999999.2.3') => error: strconv.ParseUint: parsing "99999999999999999999": value out of range
        semver('1.2.3-') => error: Prerelease is empty
        semver('1.2.3-01') => error: Numeric PreRelease version must not contain leading zeroes "01"
        semver('1.2.3-a_b') => error: Invalid character(s) found in prerelease "a_b"
        semver('1.2.3+') => error: Build meta data is empty
        semver('1.2.3+a_b') => error: Invalid character(s) found in build meta data "a_b"
        semver('v1.2-a', true) => error: short version cannot contain PreRelease/Build meta data
        semver('', true) => error: strconv.ParseUint: parsing "": invalid syntax
        "#,
    );
}

#[test]
fn a_string_matches_a_format_or_has_violations() {
    check(
        r#"
        format.dns1123Label().validate('abc') => none
        format.dns1123Label().validate('A').value()[0].startsWith('a lowercase RFC 1123 label must consist of') => true
        format.dns1123LabelPrefix().validate('abc-') => none
        format.dns1123Subdomain().validate('a.b') => none
        format.dns1123SubdomainPrefix().validate('a.b-') => none
        format.dns1035Label().validate('0a').hasValue() && !format.dns1035LabelPrefix().validate('a-').hasValue() => true
        format.qualifiedName().validate('a.b/C_d') => none
        format.labelValue().validate('a b').hasValue() => true
        format.uri().validate('x') => some ["parse \"x\": invalid URI for request"]
        format.uuid().validate('123E4567-e89b12d3-a456-426614174000') => none
        format.uuid().validate('x') => some ["does not match the UUID format"]
        format.byte().validate('YR==') => none
        format.byte().validate('') => some ["invalid base64"]
        format.date().validate('2020-02-29') => none
        format.date().validate('2021-02-29') => some ["invalid date"]
        format.datetime().validate('2020-01-01T00:00:00.5+01:00') => none
        format.datetime().validate('2020-01-01T24:00:00Z') => some ["invalid datetime"]
        format.named('byte').value() == format.byte() && format.byte() != format.date() => true
        format.named('nope') => none
        "#,
    );
}

#[test]
fn optionals_may_be_empty() {
    check(
        r#"
        optional.of(1).value() => 1
        optional.none().value() => error: optional.none() dereference
        optional.of(1).hasValue() && !optional.none().hasValue() => true
        optional.of(1).orValue(2) + optional.none().orValue(3) => 4
        optional.none().or(optional.of(5)) => some 5
        optional.ofNonZeroValue('') => none
        optional.ofNonZeroValue('a') => some "a"
        optional.ofNonZeroValue(null).hasValue() || optional.ofNonZeroValue({}).hasValue() => false
        optional.ofNonZeroValue(duration('0s')).hasValue() => false
        optional.ofNonZeroValue(timestamp('1970-01-01T00:00:00Z')).hasValue() => true
        optional.ofNonZeroValue(timestamp('0001-01-01T00:00:00Z')).hasValue() => false
        optional.ofNonZeroValue(optional.none()).hasValue() && optional.ofNonZeroValue(quantity('0')).hasValue() => true
        optional.unwrap([optional.of(1), optional.none()]) + [optional.of(2)].unwrapOpt() => [1, 2]
        [1, 2].last().value() + [5].first().value() => 7
        [].first() => none
        optional.of(2).optMap(x, x + 1) => some 3
        {'a': {'b': 1}}.?a.optFlatMap(a, a.?b) => some 1
        {'a': 1}.?b.orValue(7) => 7
        "#,
    );
}

#[test]
fn checks_reach_the_authorizer() {
    check(
        r#"
        authorizer.path('/healthz').check('get').allowed() => true
        authorizer.path('/healthz').check('put').allowed() => false
        authorizer.path('/healthz').check('get').reason() => "get /healthz"
        authorizer.path(' ') => error: path must not be empty
        authorizer.group('').resource(' ') => error: resource must not be empty
        authorizer.group('apps').resource('deployments').check('get').reason() => "get apps|deployments|||||"
        authorizer.group('g').resource('r').subresource('s').namespace('n').name('o').fieldSelector('f').labelSelector('l').check('get').reason() => "get g|r|s|n|o|f|l"
        authorizer.serviceAccount('ns', 'sa').path('/x').check('get').reason() => "ns/sa get /x"
        authorizer.serviceAccount('ns', 'S').path('/x') => error: Invalid service account name
        authorizer.serviceAccount('n.s', 's').path('/x') => error: Invalid service account namespace
        authorizer.path('/x').check('fail').errored() => true
        authorizer.path('/x').check('fail').error() => "out of order"
        authorizer.path('/x').check('get').error() => ""
        "#,
    );
}

#[test]
fn a_patch_is_written() {
    check(
        r#"
        jsonpatch.escapeKey('a/b~c~1') => "a~1b~0c~01"
        JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('b/c'), value: {'d': 1}} => {"op":"add", "path":"/a/b~1c", "value":{"d":1}}
        [JSONPatch{op: 'remove', path: '/a'}].map(patch, patch.op) => ["remove"]
        JSONPatch{op: 1} => refused: ERROR: <input>:1:13: expected type of field 'op' is 'string' but provided type is 'int'
        "#,
    );
}
