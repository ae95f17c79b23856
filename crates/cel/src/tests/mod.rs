//! Tables of expressions: their values, errors and costs.

mod any_text;
mod costs;
mod limits;
mod refusals;
mod shapes;

use super::*;
use mizzen_value::value;

pub(super) const LATEST: Version = (1, 36);
pub(super) const PLENTY: EvalLimits = EvalLimits {
    cost: u64::MAX,
    interrupted: None,
};

pub(super) fn environment() -> Environment {
    Environment::new(LATEST)
        .with_variable("x", Type::Dyn)
        .with_variable("l", Type::list(Type::Int))
}

/// The value of an expression as a string, or its error.
pub(super) fn run(text: &str) -> (String, u64) {
    let program = match environment().compile(text) {
        Ok(program) => program,
        Err(error) => return (error.to_string(), 0),
    };
    let data = value!({"a": 1, "b": {"c": "text", "n": null}, "list": [1, 2, 3], "f": true});
    let list = value!([1, 2, 3]);
    let variables = [("x", Value::data(&data)), ("l", Value::data(&list))];
    let evaluation = program.evaluate(&variables, PLENTY);
    let text = match &evaluation.value {
        Ok(value) => standard::show(value),
        Err(error) => error.to_string(),
    };
    (text, evaluation.cost)
}

#[track_caller]
fn check(text: &str, expect: &str) {
    assert_eq!(run(text).0, expect, "{text}");
}

#[test]
fn arithmetic_is_checked() {
    check("1 + 2 * 3 - 4 / 2 % 3", "5");
    check("-1 + --2", "1");
    check("9223372036854775807 + 1", "integer overflow");
    check("1u - 2u", "unsigned integer overflow");
    check("1 / 0", "division by zero");
    check("1 % 0", "modulus by zero");
    check("1.5 * 2.0", "3");
    check("1e21", "1e+21");
    check("0x1F", "31");
    check("'a' + \"b\" + r'\\n'", "ab\\n");
    check("b'a' + b'\\xff' == b'a\\377'", "true");
    check("[1] + [2] == [1, 2]", "true");
}

#[test]
fn errors_are_absorbed_by_logic() {
    check("true || 1 / 0 == 1", "true");
    check("1 / 0 == 1 || true", "true");
    check("1 / 0 == 1 && false", "false");
    check("1 / 0 == 1 && true", "division by zero");
    check("true ? 1 : 1 / 0", "1");
    check("[1, 2, 0].exists(i, 4 / i == 2)", "true");
    check("[0, 2].all(i, 4 / i == 2)", "division by zero");
    check("[0, 1].all(i, 4 / i == 2)", "false");
}

#[test]
fn paths_lead_into_data() {
    check("x.a", "1");
    check("x.b.c", "text");
    check("x['b']['c'].size()", "4");
    check("x.list[1]", "2");
    check("x.list[3]", "index out of bounds: 3");
    check("x.list['a']", "unsupported index type 'string' in list");
    check("x.nope", "no such key: nope");
    check("x.b.n == null", "true");
    check("has(x.b.n)", "true");
    check("has(x.nope)", "false");
    check("has(x.nope.a)", "no such key: nope");
    check("x.?nope.a.orValue('none')", "none");
    check("x.?b.c", "optional(text)");
    check("x[?'nope'].hasValue()", "false");
    check("x.?b.?c.orValue('')", "text");
    check("(x.f ? x.b : x).c", "text");
    check("'a' in x", "true");
    check("2 in x.list", "true");
    check("x.list + [4]", "[1, 2, 3, 4]");
}

#[test]
fn loops_go_through_lists_and_maps() {
    check("[1, 2, 3].map(i, i * 2)", "[2, 4, 6]");
    check("[1, 2, 3].filter(i, i > 1)", "[2, 3]");
    check("[1, 2, 3].map(i, i > 1, i * 2)", "[4, 6]");
    check("[1, 2, 3].exists_one(i, i > 2)", "true");
    check("{'a': 1, 'b': 2}.map(k, k)", "[a, b]");
    check("[[1, 2], [3]].map(l, l.map(i, i + 1))", "[[2, 3], [4]]");
    check("[5, 6].all(i, v, i < v)", "true");
    check("[5, 6].transformList(i, v, i + v)", "[5, 7]");
    check("{'a': 1}.transformMap(k, v, v + 1)", "{a: 2}");
    check("[5, 6].transformMapEntry(i, v, {v: i})", "{5: 0, 6: 1}");
    check(
        "[5, 5].transformMapEntry(i, v, {v: i})",
        "insert failed: key 5 already exists",
    );
    check("optional.of(3).optMap(i, i + 1).value()", "4");
    check("optional.none().optMap(i, i + 1).hasValue()", "false");
    check("[1, 2].map(i, [i].map(j, i + j))", "[[2], [4]]");
}

#[test]
fn values_are_converted() {
    check("int('12') + int(3.9) + int(2u)", "17");
    check(
        "int('x')",
        "program instantiation failed: type conversion error from 'string' to 'int'",
    );
    check("int(x.b.c)", "type conversion error from 'string' to 'int'");
    check("string(1.0) + string(true) + string(1e7)", "1true1e+07");
    check("string(duration('90m'))", "5400s");
    check(
        "string(timestamp('2024-01-02T03:04:05.5Z'))",
        "2024-01-02T03:04:05.5Z",
    );
    check(
        "timestamp('2024-01-02T03:04:05Z') - timestamp('2024-01-01T00:00:00Z') == duration('27h4m5s')",
        "true",
    );
    check(
        "type(1) == int && type([]) == list && type(int) == type",
        "true",
    );
    check("string(bytes('é'))", "é");
    check(
        "uint(-1)",
        "program instantiation failed: unsigned integer overflow",
    );
    check(
        "double('1e400')",
        "program instantiation failed: type conversion error from 'string' to 'double'",
    );
    check(
        "timestamp(253402300800)",
        "program instantiation failed: timestamp overflow",
    );
}

#[test]
fn timestamp_accessors_use_time_zones() {
    let at = "timestamp('2024-07-04T22:30:15.123Z')";
    check(&format!("{at}.getFullYear()"), "2024");
    check(&format!("{at}.getMonth()"), "6");
    check(&format!("{at}.getDate('Europe/Berlin')"), "5");
    check(&format!("{at}.getHours('+02:30')"), "1");
    check(&format!("{at}.getHours('-02:30')"), "20");
    check(&format!("{at}.getHours('America/New_York')"), "18");
    check(&format!("{at}.getDayOfWeek()"), "4");
    check(&format!("{at}.getDayOfYear()"), "185");
    check(&format!("{at}.getMilliseconds()"), "123");
    check(
        "timestamp('2044-01-04T12:00:00Z').getHours('Europe/Berlin')",
        "13",
    );
    check(
        "timestamp('2044-07-04T12:00:00Z').getHours('Australia/Sydney')",
        "22",
    );
    check(
        &format!("{at}.getHours('Nowhere')"),
        "unknown time zone Nowhere",
    );
    check("duration('90m').getHours()", "1");
    check("duration('90m').getMinutes()", "90");
}

#[test]
fn equality_crosses_number_types() {
    check("dyn(1) == 1.0 && dyn(1u) == 1 && dyn(2u) == 2.0", "true");
    check(
        "dyn(1) == 'a' || dyn(null) == 1 || dyn([1]) == {1: 2}",
        "false",
    );
    check("1 < 1.5 && 2u > 1 && 3.0 >= 3u", "true");
    check("{1: 'a'}[dyn(1.0)]", "a");
    check("1.0 in [dyn(1)]", "true");
}

#[test]
fn missing_overloads_have_cel_gos_errors() {
    check("dyn(null) + 1", "no such overload: _+_");
    check("dyn(1) + dyn('a')", "no such overload");
    check("dyn([1]) < dyn([2])", "no such overload: _<_");
    check("size(x.a)", "no such overload: size");
    check("x.a.contains('a')", "no such overload");
    check("int(x.b)", "no such overload: int(map)");
    check("-x.b.c", "no such overload");
    check(
        "x.a.all(i, true)",
        "got 'types.Int', expected iterable type",
    );
    check(
        "x.a.all(i, v, true)",
        "unsupported comprehension range type: types.Int",
    );
    check(
        "'a'.matches(x.b.c + '(')",
        "error parsing regexp: missing closing ): `text(`",
    );
    check("{dyn(1.5): 2}[1.5]", "2");
}
