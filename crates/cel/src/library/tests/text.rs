use super::check;

#[test]
fn text_is_cut_by_characters() {
    check(
        r#"
        'aéc'.charAt(1) => "é"
        'abc'.charAt(3) => ""
        'abc'.charAt(4) => error: index out of range: 4
        'aéc'.substring(1) => "éc"
        'aéc'.substring(1, 2) => "é"
        'abc'.substring(3) => ""
        'abc'.substring(4) => error: index out of range: 4
        'abc'.substring(-1) => error: index out of range: -1
        'abc'.substring(0, 4) => error: index out of range: 4
        'abc'.substring(2, 1) => error: invalid substring range. start: 2, end: 1
        'AbÉ'.lowerAscii() + 'aBé'.upperAscii() => "abÉABé"
        ' \t\u00a0abc\n'.trim() => "abc"
        "#,
    );
}

#[test]
fn text_is_searched() {
    check(
        r#"
        'éabcabc'.indexOf('bc') => 2
        'éabcabc'.indexOf('bc', 3) => 5
        'abc'.indexOf('x') => -1
        'abc'.indexOf('a', 9) => -1
        'abc'.indexOf('', 7) => 7
        'abc'.indexOf('a', -7) => error: index out of range: -7
        'éabcabc'.lastIndexOf('bc') => 5
        'éabcabc'.lastIndexOf('bc', 4) => 2
        'éabcabc'.lastIndexOf('bc', 5) => 5
        'abc'.lastIndexOf('') => 3
        'abc'.lastIndexOf('', -7) => -7
        'abc'.lastIndexOf('abcd') => -1
        'abc'.lastIndexOf('c', 3) => -1
        'abc'.lastIndexOf('a', -7) => error: index out of range: -7
        ''.lastIndexOf('a') => -1
        dyn('a').indexOf(dyn(1)) => error: no such overload: indexOf(string, int)
        "#,
    );
}

#[test]
fn text_is_split_joined_and_replaced() {
    check(
        r#"
        'a,b,c'.split(',') => ["a", "b", "c"]
        'a,b,c'.split(',', 0) => []
        'a,b,c'.split(',', 1) => ["a,b,c"]
        'a,b,c'.split(',', 2) => ["a", "b,c"]
        'a,b,c'.split(',', -1) => ["a", "b", "c"]
        'aéc'.split('') => ["a", "é", "c"]
        'aéc'.split('', 2) => ["a", "éc"]
        ''.split('') => []
        ''.split(',') => [""]
        ['a', 'b'].join() + ['a', 'b'].join(', ') => "aba, b"
        [dyn('a'), dyn(1)].join() => error: join: invalid input: 1
        'aéc'.replace('', 'x') => "xaxéxcx"
        'aéc'.replace('', 'x', 2) => "xaxéc"
        'abcabc'.replace('b', 'x', -1) => "axcaxc"
        'abcabc'.replace('b', 'x', 1) => "axcabc"
        'abcabc'.replace('b', 'x', 0) => "abcabc"
        strings.quote('a"\n\a\u0001é\\') => "\"a\\\"\\n\\a\x01é\\\\\""
        "#,
    );
}

#[test]
fn a_regular_expression_is_found() {
    check(
        r#"
        'abc 123 def 456'.find('[0-9]+') => "123"
        'abc'.find('[0-9]+') => ""
        'abc 123 def 456'.findAll('[0-9]+') => ["123", "456"]
        'abc 123 def 456'.findAll('[0-9]+', 1) => ["123"]
        'abc 123 def 456'.findAll('[0-9]+', 0) => []
        'abc 123 def 456'.findAll('[0-9]+', -1) => ["123", "456"]
        'abc'.findAll('x*') => ["", "", "", ""]
        "#,
    );
}

#[test]
fn values_are_put_into_text() {
    check(
        r#"
        '%s %% %s'.format(['x', 1]) => "x % 1"
        '%s %s'.format([true, null]) => "true null"
        '%s'.format([1.0e30]) => "1e+30"
        '%s'.format([timestamp('2020-01-01T00:00:00Z')]) => "2020-01-01T00:00:00Z"
        '%s'.format([duration('90s')]) => "90s"
        '%s'.format([type(1)]) => "int"
        '%s'.format([type(optional.of(1))]) => "optional_type"
        '%s'.format([[1.0e30, 1.5, -2.25]]) => "[1000000000000000019884624838656.000000, 1.500000, -2.250000]"
        '%s'.format([['a\tb', b'abc', null, type(1)]]) => "[\"a\\tb\", b\"abc\", null, int]"
        '%s'.format([[timestamp('2020-01-01T00:00:00Z'), duration('1h1s')]]) => "[timestamp(\"2020-01-01T00:00:00Z\"), duration(\"3601s\")]"
        '%s'.format([{'b': 1, 'a': duration('5s')}]) => "{\"a\":duration(\"5s\"), \"b\":1}"
        '%s'.format([{true: 2u, false: 3u}]) => "{false:3, true:2}"
        '%x %X'.format(['aé', b'\xff\x0a']) => "61c3a9 FF0A"
        '%x %X %o %b %d'.format([-255, 255, 8, -5, 7u]) => "-ff FF 10 -101 7"
        '%b %b'.format([true, 5u]) => "1 101"
        "#,
    );
}

#[test]
fn numbers_are_formatted_for_en_us() {
    check(
        r#"
        '%f'.format([1234567.891]) => "1,234,567.891000"
        '%.2f'.format([-1234.5]) => "-1,234.50"
        '%.0f %.0f %.0f'.format([0.5, 1.5, 2.5]) => "0 2 2"
        '%.2f %.2f %.1f'.format([2.675, 0.125, 0.35]) => "2.67 0.12 0.3"
        '%.3f'.format([1e21]) => "1,000,000,000,000,000,000,000.000"
        '%.18f'.format([0.1]) => "0.100000000000000006"
        '%.300f'.format([1.0]) => "1.00000000000000000000000000000000000000000000"
        '%f'.format([-0.0]) => "0.000000"
        '%f %f %f'.format(['NaN', 'Infinity', '-Infinity']) => "NaN ∞ -∞"
        '%e %e'.format([1052.032911275, -0.000123]) => "1.052033×10⁰³ -1.230000×10⁻⁰⁴"
        '%e'.format([1e100]) => "1.000000×10¹⁰⁰"
        '%.3e'.format([1052.032911275]) => "1.052033×10⁰³"
        '%.20e'.format([0.0]) => "       0.000000×10⁰⁰"
        '%e'.format(['-Infinity']) => "    -∞"
        "#,
    );
}

#[test]
fn unformattable_literals_are_compile_errors() {
    check(
        r#"
        dyn('%d').format([dyn('a')]) => error: error during formatting: decimal clause can only be used on integers, was given string
        '%f'.format([dyn('abc')]) => error: error during formatting: fixed-point clause can only be used on doubles, was given string
        '%e'.format([dyn('x')]) => error: error during formatting: scientific clause can only be used on doubles, was given string
        '%x'.format([dyn(1.0)]) => error: error during formatting: only integers, byte buffers, and strings can be formatted as hex, was given double
        '%b'.format([dyn('x')]) => error: error during formatting: only integers and bools can be formatted as binary, was given string
        '%o'.format([dyn('x')]) => error: error during formatting: octal clause can only be used on integers, was given string
        '%d'.format([dyn(optional.of(1))]) => error: error during formatting: decimal clause can only be used on integers, was given optional_type
        '%s'.format([dyn(quantity('1'))]) => error: error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given kubernetes.Quantity
        '%s'.format([dyn([dyn(quantity('1'))])]) => error: error during formatting: no formatting function for kubernetes.Quantity
        '%s'.format([b'a\xff']) => error: error during formatting: could not convert argument "invalid UTF-8 in bytes, cannot convert to string" to string
        dyn('%s %s').format([1]) => error: index 1 out of range
        dyn('%').format([1]) => error: unexpected end of string
        dyn('%y').format([1]) => error: could not parse formatting clause: unrecognized formatting clause "y"
        dyn('%é').format([1]) => error: could not parse formatting clause: unrecognized formatting clause "Ã"
        dyn('%.').format([1]) => error: could not parse formatting clause: error while parsing precision: could not find end of precision specifier
        dyn('%.f').format([1.0]) => error: could not parse formatting clause: error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax
        dyn('%.99999999999999999999f').format([1.0]) => error: could not parse formatting clause: error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing "99999999999999999999": value out of range
        "#,
    );
}

#[test]
fn a_format_that_does_not_match_its_list_is_a_compile_error() {
    check(
        r#"
        '%d'.format(['a']) => refused: ERROR: <input>:1:14: error during formatting: decimal clause can only be used on integers, was given string
        '%f'.format([1]) => refused: ERROR: <input>:1:14: error during formatting: fixed-point clause can only be used on doubles, was given int
        '%y'.format([1]) => refused: ERROR: <input>:1:12: could not parse formatting clause: unrecognized formatting clause "y"
        '%s %s'.format([1]) => refused: ERROR: <input>:1:15: index 1 out of range
        '%'.format([1]) => refused: ERROR: <input>:1:11: unexpected end of string
        '%s'.format([[ip('1.2.3.4')]]) => refused: ERROR: <input>:1:17: error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given net.IP
        '%s'.format([1, 2]) => refused: ERROR: <input>:1:12: too many arguments supplied to string.format (expected 1, got 2)
        "#,
    );
}
