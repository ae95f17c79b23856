//! CEL expressions that select devices. Kubernetes: dynamic-resource-allocation/cel/compile.go.

use std::sync::OnceLock;

use mizzen_cel::{
    AstNode, CompileProgramError, CostRange, Environment, SizeEstimator, Type, Version,
};
use mizzen_object::{Path, ViolationReason, Violations};

const VERSION: Version = (1, 36);
/// What one look at a device may cost at most.
const MAX_COST: u64 = 1_000_000;
const DEVICE: &str = "kubernetes.DRADevice";

/// How long the domain of an attribute may be, its name, its value, and the name of a driver.
const MAX_DOMAIN: u64 = 63;
const MAX_ID: u64 = 32;
const MAX_VALUE: u64 = 64;
const MAX_DRIVER: u64 = 63;
/// How many attributes or capacities a device may have.
const MAX_ENTRIES: u64 = 32;

/// Validates an expression.
pub(super) fn validate(expression: &str, path: &Path, violations: &mut Violations) {
    let program = match environment().compile(expression) {
        Ok(program) => program,
        Err(CompileProgramError::Compile(error)) => {
            return violations.invalid(path, expression, &format!("compilation failed: {error}"));
        }
        Err(error) => {
            return violations.push(
                ViolationReason::Internal,
                path,
                format!("Internal error: {error}"),
            );
        }
    };
    let kind = program.result_type();
    if !matches!(kind, Type::Bool | Type::Any) {
        // Kubernetes: here a type is named as it is declared, not as checks name it.
        let shown = kind.declared();
        let detail = format!("must evaluate to bool or the unknown type, not {shown}");
        return violations.invalid(path, expression, &detail);
    }
    if program.estimate(&DeviceSizes).max > MAX_COST {
        violations.forbidden(path, "too complex, exceeds cost limit");
    }
}

fn environment() -> &'static Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let by_domain = |value: Type| Type::map(Type::String, Type::map(Type::String, value));
        let fields = [
            ("driver".into(), Type::String),
            ("allowMultipleAllocations".into(), Type::Bool),
            ("attributes".into(), by_domain(Type::Any)),
            (
                "capacity".into(),
                by_domain(Type::object("kubernetes.Quantity")),
            ),
        ];
        Environment::new(VERSION)
            .with_bindings()
            .with_object(DEVICE, fields)
            .with_variable("device", Type::object(DEVICE))
    })
}

/// How large the parts of a device are at most.
struct DeviceSizes;

impl SizeEstimator for DeviceSizes {
    fn size(&self, node: &AstNode) -> Option<CostRange> {
        let path: Vec<&str> = node.path.iter().map(|name| name.as_str()).collect();
        let max = match path[..] {
            ["device", "driver"] => MAX_DRIVER,
            ["device", "allowMultipleAllocations"] => 1,
            ["device", "attributes" | "capacity"] => MAX_ENTRIES,
            ["device", "attributes" | "capacity", "@keys"] => MAX_DOMAIN,
            ["device", "attributes" | "capacity", "@values" | "@items"] => MAX_ENTRIES,
            [
                "device",
                "attributes" | "capacity",
                "@values" | "@items",
                "@keys",
            ] => MAX_ID,
            ["device", "attributes", "@values" | "@items", _] => MAX_VALUE,
            _ => return None,
        };
        Some(CostRange { min: 0, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compile error of an expression, in one line.
    #[track_caller]
    fn check(expression: &str, expected: Option<&str>) {
        let mut violations = Violations::default();
        validate(expression, &Path::new("e"), &mut violations);
        let found = violations.aggregate();
        assert_eq!(found.as_deref(), expected, "{expression}");
    }

    #[test]
    fn an_expression_selects_by_what_a_device_has() {
        for expression in [
            "device.driver == 'x'",
            "device.allowMultipleAllocations",
            "device.attributes['a'].b == 1",
            "device.attributes['a'].b",
            "device.attributes['a'].?b.orValue(false)",
            "device.attributes['a'].b.isGreaterThan(semver('1.0.0'))",
            "device.capacity['a'].mem.compareTo(quantity('10Gi')) > 0",
            "device.attributes['a'].all(x, device.attributes['a'].all(y, x == y))",
            "cel.bind(dra, device.attributes['a'], dra.b && dra.c)",
            "cel.bind(x, device.driver == 'a', x)",
        ] {
            check(expression, None);
        }
    }

    #[test]
    fn an_expression_must_compile_to_a_boolean() {
        check(
            "foo",
            Some(
                "e: Invalid value: \"foo\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in \
                 container '')\n | foo\n | ^",
            ),
        );
        check(
            "null",
            Some(
                "e: Invalid value: \"null\": must evaluate to bool or the unknown type, not null_type",
            ),
        );
        let mut violations = Violations::default();
        validate("", &Path::new("e"), &mut violations);
        let found = violations.aggregate().unwrap_or_default();
        assert!(
            found.contains("ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>'"),
            "{found}"
        );
        assert!(!found.contains('\n'), "there is no line to show: {found}");
        check(
            "1",
            Some("e: Invalid value: \"1\": must evaluate to bool or the unknown type, not int"),
        );
        check(
            "device.driver",
            Some(
                "e: Invalid value: \"device.driver\": must evaluate to bool or the unknown type, not string",
            ),
        );
    }

    /// Each was seen at v1.36.4.
    #[test]
    fn an_attribute_is_any_and_not_dyn() {
        check("device.attributes['a'].b", None);
        check("device.attributes['a'].b && true", None);
        let results = [
            ("dyn(true)", "dyn"),
            ("device.attributes['a'].b.c", "dyn"),
            ("-device.attributes['a'].b", "dyn"),
            (
                "device.attributes",
                "map(string, map(string, google.protobuf.Any))",
            ),
            ("[device.attributes['a'].b]", "list(google.protobuf.Any)"),
            (
                "optional.of(device.attributes['a'].b)",
                "optional_type(google.protobuf.Any)",
            ),
            (
                "type(device.attributes['a'].b)",
                "type(google.protobuf.Any)",
            ),
            ("duration('1s')", "google.protobuf.Duration"),
        ];
        for (expression, result) in results {
            let expected = format!(
                "e: Invalid value: \"{expression}\": must evaluate to bool or the unknown type, not {result}"
            );
            check(expression, Some(&expected));
        }
        let mistakes = [
            (
                "device.attributes['a'].b.all(x, x)",
                "expression of type 'any' cannot be range of a comprehension (must be list, map, or dynamic)",
            ),
            (
                "device.attributes['a'] + 1",
                "found no matching overload for '_+_' applied to '(map(string, any), int)'",
            ),
            (
                "[1, device.attributes['a'].b]",
                "expected type 'int' but found 'any'",
            ),
        ];
        for (expression, mistake) in mistakes {
            let mut violations = Violations::default();
            validate(expression, &Path::new("e"), &mut violations);
            let found = violations.aggregate().unwrap_or_default();
            assert!(found.contains(mistake), "{found}");
        }
    }

    #[test]
    fn an_expression_may_not_cost_too_much() {
        let nested = |inner: &str| format!("device.attributes['a'].all(x, {inner})");
        let deep = nested(&nested(&nested(&nested("x == x"))));
        check(&deep, Some("e: Forbidden: too complex, exceeds cost limit"));
        check(&nested(&nested("x == x")), None);
    }
}
