//! Type checking of a policy's expressions against the schemas of the matched kinds.
//!
//! Kubernetes: a policy with type errors is not rejected; a controller writes the warnings into its status
//! (policy/validating/typechecking.go).

use std::collections::HashSet;
use std::sync::Arc;

use mizzen_cel::{DeclType as DataShape, Environment, Type, escape};
use mizzen_object::GroupVersionKind;
use mizzen_object::schema::{FieldShape, FieldType, Struct};
use mizzen_value::{Str, Value, value};

use crate::expression::{
    ExpressionCompiler, ExpressionResult, ExpressionVariables, typed_environment, with_authorizer,
};

/// At most so many kinds of a rule are checked.
const MAX_KINDS: usize = 10;

/// Finds the shapes of objects.
pub trait Shapes {
    /// The kind of a resource's objects.
    fn kind(&self, group: &str, version: &str, resource: &str) -> Option<GroupVersionKind>;

    /// The shape of a kind's objects.
    fn shape(&self, kind: &GroupVersionKind) -> Option<Arc<Struct>>;
}

/// What the status of a ValidatingAdmissionPolicy says of its types: `typeChecking.expressionWarnings`.
pub fn expression_warnings(policy: &Value, shapes: &dyn Shapes) -> Vec<Value> {
    let (spec, mut warnings) = (&policy["spec"], Vec::new());
    let checks: Vec<TypeChecker> = kinds(spec, shapes)
        .into_iter()
        .filter_map(|kind| TypeChecker::new(spec, kind, shapes))
        .collect();
    for (index, validation) in spec["validations"].items().enumerate() {
        for field in ["expression", "messageExpression"] {
            let text = validation[field].str();
            let problems: Vec<String> = checks
                .iter()
                .filter_map(|check| check.problem(text))
                .collect();
            if !text.is_empty() && !problems.is_empty() {
                let place = format!("spec.validations[{index}].{field}");
                warnings.push(value!({ "fieldRef": place, "warning": (problems.join("\n")) }));
            }
        }
    }
    warnings
}

/// The kinds whose shapes must be known for that: of objects, and of parameters.
pub fn expression_kinds(policy: &Value, shapes: &dyn Shapes) -> Vec<GroupVersionKind> {
    let spec = &policy["spec"];
    kinds(spec, shapes)
        .into_iter()
        .chain(spec.get("paramKind").map(kind_of))
        .collect()
}

/// The kinds that a policy's rules name one by one, in order.
fn kinds(spec: &Value, shapes: &dyn Shapes) -> Vec<GroupVersionKind> {
    let mut kinds = Vec::new();
    for rule in spec["matchConstraints"]["resourceRules"].list() {
        let found = kinds_of(rule, shapes);
        let full = found.len() >= MAX_KINDS;
        kinds.extend(found);
        if full {
            break;
        }
    }
    kinds.sort_by(|one, other| {
        (&one.group, &one.version, &one.kind).cmp(&(&other.group, &other.version, &other.kind))
    });
    kinds.dedup();
    kinds
}

fn kinds_of(rule: &Value, shapes: &dyn Shapes) -> Vec<GroupVersionKind> {
    let sorted = |field: &str| {
        let mut texts: Vec<&str> = rule[field].items().map(Value::str).collect();
        texts.sort_unstable();
        texts
    };
    let (groups, versions, mut resources) = (
        sorted("apiGroups"),
        sorted("apiVersions"),
        sorted("resources"),
    );
    // What a star stands for is not guessed.
    if groups
        .iter()
        .chain(&versions)
        .any(|text| text.contains('*'))
    {
        return Vec::new();
    }
    resources.retain(|resource| !resource.contains(['*', '/']));
    let mut found = Vec::new();
    for group in groups {
        for version in &versions {
            found.extend(
                resources
                    .iter()
                    .filter_map(|resource| shapes.kind(group, version, resource)),
            );
        }
    }
    found.truncate(MAX_KINDS);
    found
}

/// A policy's expressions are about objects of one kind.
struct TypeChecker {
    kind: GroupVersionKind,
    compiler: ExpressionCompiler,
}

impl TypeChecker {
    fn new(spec: &Value, kind: GroupVersionKind, shapes: &dyn Shapes) -> Option<TypeChecker> {
        let mut declared = DeclaredTypes {
            environment: typed_environment(Type::Dyn, None),
            known: HashSet::new(),
        };
        let object = declared.declare(&*shapes.shape(&kind)?);
        let params = spec.get("paramKind").map(|named| {
            let shape = shapes.shape(&kind_of(named));
            shape.map_or(Type::Dyn, |shape| declared.declare(&shape))
        });
        let mut environment = with_authorizer(declared.environment)
            .with_variable("object", object.clone())
            .with_variable("oldObject", object);
        if let Some(params) = params {
            environment = environment.with_variable("params", params);
        }
        let mut compiler = ExpressionCompiler::typed(environment);
        for variable in spec["variables"].list() {
            let _ = compiler.declare(
                variable["name"].str(),
                variable["expression"].str(),
                ExpressionVariables::default(),
            );
        }
        Some(TypeChecker { kind, compiler })
    }

    fn problem(&self, text: &str) -> Option<String> {
        let refusal = self
            .compiler
            .compile(
                text,
                ExpressionVariables::default(),
                ExpressionResult::Anything,
            )
            .err()?;
        // What has the right types but cannot be computed is not looked for here.
        let detail = refusal
            .detail
            .strip_prefix("compilation failed: ")
            .filter(|_| !refusal.internal)?;
        let GroupVersionKind {
            group,
            version,
            kind,
        } = &self.kind;
        Some(format!("{group}/{version}, Kind={kind}: {detail}\n"))
    }
}

fn kind_of(named: &Value) -> GroupVersionKind {
    let (group, version) = named["apiVersion"]
        .str()
        .split_once('/')
        .unwrap_or(("", named["apiVersion"].str()));
    GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: named["kind"].str().into(),
    }
}

/// Declares types of objects, each once.
struct DeclaredTypes {
    environment: Environment,
    known: HashSet<Str>,
}

impl DeclaredTypes {
    fn declare(&mut self, ty: &Struct) -> Type {
        let name = Str::from(format!("{}.{}", ty.home, ty.name));
        if let Some(rest) = ty.rest() {
            return rest
                .shape(&name)
                .map_or(Type::Dyn, |shape| self.declare_shape(&shape));
        }
        if self.known.insert(name.clone()) {
            let mut fields: Vec<(Str, Type)> = ty
                .fields()
                .iter()
                .filter_map(|field| Some((escape(&field.name)?, self.field(&field.ty)?)))
                .collect();
            if ty.is_kind() {
                fields.extend(["kind", "apiVersion"].map(|field| (Str::from(field), Type::String)));
            }
            self.environment = self.environment.clone().with_object(&name, fields);
        }
        Type::Object(name)
    }

    fn declare_shape(&mut self, shape: &DataShape) -> Type {
        self.environment = self.environment.clone().with_shape(shape);
        shape.static_type()
    }

    /// The type of a field; none if it cannot be seen. Kubernetes: what has several types and is not marked has none,
    /// and neither have lists and maps of it (cel/common/schemas.go).
    fn field(&mut self, ty: &FieldType) -> Option<Type> {
        Some(match &ty.shape {
            FieldShape::Bool => Type::Bool,
            FieldShape::Int32 | FieldShape::Int64 => Type::Int,
            FieldShape::Float => Type::Double,
            FieldShape::String | FieldShape::Duration => Type::String,
            FieldShape::Bytes => Type::Bytes,
            FieldShape::Time | FieldShape::MicroTime => Type::Timestamp,
            FieldShape::IntOrString => Type::Dyn,
            FieldShape::Raw => {
                self.environment = self.environment.clone().with_object(RAW, []);
                Type::object(RAW)
            }
            FieldShape::Quantity | FieldShape::Json | FieldShape::Or(..) => return None,
            FieldShape::List(item) => Type::list(self.field(item)?),
            FieldShape::Map(item) => Type::map(Type::String, self.field(item)?),
            FieldShape::Struct(inner) => self.declare(inner),
        })
    }
}

/// An object of which nothing is known.
const RAW: &str = "RawExtension";

#[cfg(test)]
mod tests {
    use super::*;

    struct BuiltIn;

    impl Shapes for BuiltIn {
        fn kind(&self, group: &str, version: &str, resource: &str) -> Option<GroupVersionKind> {
            let fits = |kind: &&mizzen_object::KindData| {
                kind.gvk.group == group && kind.gvk.version == version && kind.plural == resource
            };
            let kind = mizzen_schemas::schemas().kinds.iter().find(fits)?;
            Some(kind.gvk.clone())
        }

        fn shape(&self, gvk: &GroupVersionKind) -> Option<Arc<Struct>> {
            let mut kinds = mizzen_schemas::schemas().kinds.iter();
            let kind = kinds.find(|kind| kind.gvk == *gvk)?;
            Some(kind.root.clone())
        }
    }

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        let mut policy = value!({ "spec": { "matchConstraints": { "resourceRules": [
            { "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments", "deployments/scale"] },
            { "apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["pods"] }
        ] } } });
        spec.entries()
            .for_each(|(field, value)| policy.entry("spec").set(field, value.clone()));
        let warnings = expression_warnings(&policy, &BuiltIn);
        let texts: Vec<&str> = warnings
            .iter()
            .map(|warning| warning["warning"].str())
            .collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn an_undefined_field_is_a_warning() {
        check(
            value!({ "validations": [{ "expression": "object.spec.replicas <= 5 && object.metadata.labels['a'] == 'b'" }] }),
            &[],
        );
        check(
            value!({ "validations": [{ "expression": "object.spec.replicsa <= 5" }] }),
            &[
                "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replicsa'\n | object.spec.replicsa <= 5\n | ...........^\n",
            ],
        );
    }

    #[test]
    fn a_type_mismatch_is_a_warning() {
        let said = "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_==_' applied to '(int, string)'\n \
                    | object.spec.replicas == 'a'\n | .....................^\n";
        check(
            value!({ "validations": [{ "expression": "object.spec.replicas == 'a'" }] }),
            &[said],
        );
    }

    #[test]
    fn variables_and_parameters_are_typed() {
        let spec = value!({
            "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" },
            "variables": [{ "name": "n", "expression": "object.spec.replicas" }],
            "validations": [{ "expression": "variables.n < 5 && params.data['x'] == 'y'", "messageExpression": "params.nope" }]
        });
        let said = "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'nope'\n | params.nope\n | ......^\n";
        check(spec, &[said]);
    }

    #[test]
    fn rules_with_a_wildcard_are_not_checked() {
        let rules = value!({ "resourceRules": [{ "apiGroups": ["*"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"] }] });
        check(
            value!({ "matchConstraints": (rules), "validations": [{ "expression": "object.nope" }] }),
            &[],
        );
    }
}
