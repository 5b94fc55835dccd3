//! The paths of the API: each is routed and described by the same line, so that the document cannot tell of others.

use axum::Router;
use axum::routing::MethodRouter;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::{Api, Problem};

/// Makes the schema of a type.
type Draws = fn(&mut SchemaGenerator) -> Schema;

/// What a path takes and gives.
#[derive(Debug, Clone)]
pub(crate) struct Says {
    method: &'static str,
    id: &'static str,
    summary: &'static str,
    query: Option<Draws>,
    body: Option<(&'static [&'static str], Draws)>,
    answer: Option<Draws>,
    kind: &'static str,
    status: u16,
    open: bool,
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

fn whole<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.root_schema_for::<T>()
}

impl Says {
    fn new(method: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self {
            method,
            id,
            summary,
            query: None,
            body: None,
            answer: None,
            kind: "application/json",
            status: 200,
            open: false,
        }
    }

    pub(crate) fn get(id: &'static str, summary: &'static str) -> Self {
        Self::new("get", id, summary)
    }

    pub(crate) fn post(id: &'static str, summary: &'static str) -> Self {
        Self::new("post", id, summary)
    }

    pub(crate) fn put(id: &'static str, summary: &'static str) -> Self {
        Self::new("put", id, summary)
    }

    pub(crate) fn patch(id: &'static str, summary: &'static str) -> Self {
        Self::new("patch", id, summary)
    }

    pub(crate) fn delete(id: &'static str, summary: &'static str) -> Self {
        Self::new("delete", id, summary)
    }

    /// It has these parameters in the query.
    pub(crate) fn query<T: JsonSchema>(self) -> Self {
        Self {
            query: Some(whole::<T>),
            ..self
        }
    }

    /// It takes this.
    pub(crate) fn body<T: JsonSchema>(self) -> Self {
        Self {
            body: Some((&["application/json"], schema::<T>)),
            ..self
        }
    }

    /// It takes this, as JSON or as text of these kinds.
    pub(crate) fn body_or_text<T: JsonSchema>(self, kinds: &'static [&'static str]) -> Self {
        Self {
            body: Some((kinds, schema::<T>)),
            ..self
        }
    }

    /// It answers with this.
    pub(crate) fn answers<T: JsonSchema>(self) -> Self {
        Self {
            answer: Some(schema::<T>),
            ..self
        }
    }

    /// It answers with text of this kind.
    pub(crate) fn streams(self, kind: &'static str) -> Self {
        Self {
            kind,
            answer: Some(schema::<String>),
            ..self
        }
    }

    /// It answers with this status.
    pub(crate) fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Nobody has to say who asks.
    pub(crate) fn open(self) -> Self {
        Self { open: true, ..self }
    }
}

/// The parameters that are part of a path.
fn in_path(path: &str) -> impl Iterator<Item = Value> {
    let names = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let of_jobs = path.starts_with("/jobs");
    names.map(move |name| {
        let schema = match name {
            "id" if of_jobs => json!({"type": "integer", "format": "uint64", "minimum": 1}),
            _ => json!({"type": "string", "minLength": 1}),
        };
        json!({"name": name, "in": "path", "required": true, "schema": schema})
    })
}

/// The parameters of a query, from the schema of what it is read into.
fn in_query(schema: &Schema) -> Vec<Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let one = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let said = schema.as_object_mut().and_then(|s| s.remove("description"));
        json!({"name": name, "in": "query", "required": false, "description": said, "schema": schema})
    };
    properties.into_iter().flatten().map(one).collect()
}

/// All paths.
pub(crate) struct Pages {
    router: Router<Api>,
    generator: SchemaGenerator,
    paths: Map<String, Value>,
}

impl Pages {
    pub(crate) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|s| {
            s.definitions_path = "/components/schemas".into();
            s.meta_schema = None;
        });
        Self {
            router: Router::new(),
            generator: settings.into_generator(),
            paths: Map::new(),
        }
    }

    /// Adds a path.
    pub(crate) fn add(mut self, path: &str, handler: MethodRouter<Api>, says: Says) -> Self {
        let mut parameters: Vec<Value> = in_path(path).collect();
        if let Some(query) = says.query {
            parameters.extend(in_query(&query(&mut self.generator)));
        }
        let problem = self.generator.subschema_for::<Problem>();
        let problem = json!({
            "description": "It was not done; `code` says why, and `detail` what would be right.",
            "content": {"application/problem+json": {"schema": problem}},
        });
        let done = match says.answer {
            None => json!({"description": "Done."}),
            Some(answer) => {
                let schema = answer(&mut self.generator);
                json!({"description": "Done.", "content": {says.kind: {"schema": schema}}})
            }
        };
        let mut operation = json!({
            "operationId": says.id,
            "summary": says.summary,
            "parameters": parameters,
            "responses": {says.status.to_string(): done, "default": problem},
        });
        if let Some((kinds, body)) = says.body {
            let schema = body(&mut self.generator);
            let content = |kind: &&str| {
                let schema = match *kind {
                    "application/json" => json!(schema),
                    _ => json!({"type": "string"}),
                };
                ((*kind).to_owned(), json!({"schema": schema}))
            };
            let content: Map<String, Value> = kinds.iter().map(content).collect();
            operation["requestBody"] = json!({"required": true, "content": content});
        }
        if says.open {
            operation["security"] = json!([]);
        }
        let there = self.paths.entry(path.to_owned()).or_insert_with(|| json!({}));
        there[says.method] = operation;
        self.router = self.router.route(path, handler);
        self
    }

    /// The router, and the document that describes it.
    pub(crate) fn finish(mut self) -> (Router<Api>, Value) {
        let schemas = self.generator.take_definitions(true);
        let document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Dovetail",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "The API of the scheduler. Times are microseconds since 1970; what goes wrong is a problem \
                                document (RFC 9457) with a code that does not change.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "/api/v1"}],
            "security": [{"token": []}, {"session": []}],
            "paths": self.paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {
                    "token": {"type": "http", "scheme": "bearer", "description": "A token of a user."},
                    "session": {
                        "type": "apiKey", "in": "cookie", "name": "dovetail_session",
                        "description": "Set by signing in. Changes need the header X-Csrf-Token too.",
                    },
                },
            },
        });
        (self.router, document)
    }
}
