//! OpenAPI 3.0 as protobuf: gnostic's `openapi.v3.Document`, as tables for `proto`.

use mizzen_value::Value;

use super::proto::ProtoShape::*;
use super::proto::{EXTERNAL_DOCS, Message, message};

static SCHEMA: Message = Message {
    fields: &[
        ("nullable", 1, Bool),
        ("externalDocs", 6, One(&EXTERNAL_DOCS)),
        ("example", 7, Any),
        ("title", 9, Text),
        ("multipleOf", 10, Double),
        ("maximum", 11, Double),
        ("exclusiveMaximum", 12, Bool),
        ("minimum", 13, Double),
        ("exclusiveMinimum", 14, Bool),
        ("maxLength", 15, Int),
        ("minLength", 16, Int),
        ("pattern", 17, Text),
        ("maxItems", 18, Int),
        ("minItems", 19, Int),
        ("uniqueItems", 20, Bool),
        ("maxProperties", 21, Int),
        ("minProperties", 22, Int),
        ("required", 23, Many(&Text)),
        ("enum", 24, Many(&Any)),
        ("type", 25, Text),
        ("allOf", 26, Many(&OrReference(&SCHEMA))),
        ("oneOf", 27, Many(&OrReference(&SCHEMA))),
        ("anyOf", 28, Many(&OrReference(&SCHEMA))),
        ("not", 29, One(&SCHEMA)),
        ("items", 30, In(1, &OrReference(&SCHEMA))),
        ("properties", 31, Named(1, &OrReference(&SCHEMA))),
        ("additionalProperties", 32, OrBool(&OrReference(&SCHEMA))),
        ("default", 33, Scalar),
        ("description", 34, Text),
        ("format", 35, Text),
    ],
    extensions: 36,
};

static PARAMETER: Message = Message {
    fields: &[
        ("name", 1, Text),
        ("in", 2, Text),
        ("description", 3, Text),
        ("required", 4, Bool),
        ("schema", 10, OrReference(&SCHEMA)),
    ],
    extensions: 14,
};

static MEDIA_TYPE: Message = Message {
    fields: &[("schema", 1, OrReference(&SCHEMA))],
    extensions: 5,
};

static REQUEST_BODY: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("content", 2, Named(1, &One(&MEDIA_TYPE))),
        ("required", 3, Bool),
    ],
    extensions: 4,
};

static RESPONSE: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("content", 3, Named(1, &One(&MEDIA_TYPE))),
    ],
    extensions: 5,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Many(&Text)),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("parameters", 6, Many(&OrReference(&PARAMETER))),
        ("requestBody", 7, OrReference(&REQUEST_BODY)),
        ("responses", 8, Named(2, &OrReference(&RESPONSE))),
        ("deprecated", 10, Bool),
    ],
    extensions: 13,
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 4, One(&OPERATION)),
        ("put", 5, One(&OPERATION)),
        ("post", 6, One(&OPERATION)),
        ("delete", 7, One(&OPERATION)),
        ("options", 8, One(&OPERATION)),
        ("head", 9, One(&OPERATION)),
        ("patch", 10, One(&OPERATION)),
        ("parameters", 13, Many(&OrReference(&PARAMETER))),
    ],
    extensions: 14,
};

static INFO: Message = Message {
    fields: &[("title", 1, Text), ("version", 6, Text)],
    extensions: 7,
};

static SECURITY_SCHEME: Message = Message {
    fields: &[
        ("type", 1, Text),
        ("description", 2, Text),
        ("name", 3, Text),
        ("in", 4, Text),
    ],
    extensions: 9,
};

static COMPONENTS: Message = Message {
    fields: &[
        ("schemas", 1, Named(1, &OrReference(&SCHEMA))),
        (
            "securitySchemes",
            7,
            Named(1, &OrReference(&SECURITY_SCHEME)),
        ),
    ],
    extensions: 10,
};

static DOCUMENT: Message = Message {
    fields: &[
        ("openapi", 1, Text),
        ("info", 2, One(&INFO)),
        ("paths", 4, Named(1, &One(&PATH_ITEM))),
        ("components", 5, One(&COMPONENTS)),
    ],
    extensions: 9,
};

pub(super) fn document(document: &Value) -> Vec<u8> {
    message(&DOCUMENT, document)
}
