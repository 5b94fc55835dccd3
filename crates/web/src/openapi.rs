//! The router of the API together with its OpenAPI document: each route is added and described at once, so that the
//! document matches the router.

use axum::Router;
use axum::routing::MethodRouter;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::{Api, Problem};

/// Generates the schema of a type.
type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// The description of a route.
#[derive(Debug, Clone)]
pub(crate) struct RouteDoc {
    method: &'static str,
    id: &'static str,
    summary: &'static str,
    query: Option<SchemaFn>,
    body: Option<(&'static [&'static str], SchemaFn)>,
    response: Option<SchemaFn>,
    media_type: &'static str,
    status: u16,
    is_public: bool,
}

fn referenced<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

fn inline<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.root_schema_for::<T>()
}

impl RouteDoc {
    fn new(method: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self {
            method,
            id,
            summary,
            query: None,
            body: None,
            response: None,
            media_type: "application/json",
            status: 200,
            is_public: false,
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

    /// Sets the parameters of the query.
    pub(crate) fn query<T: JsonSchema>(self) -> Self {
        Self {
            query: Some(inline::<T>),
            ..self
        }
    }

    /// Sets the body, as JSON.
    pub(crate) fn body<T: JsonSchema>(self) -> Self {
        Self {
            body: Some((&["application/json"], referenced::<T>)),
            ..self
        }
    }

    /// Sets the body, in one of these media types; all but JSON are text.
    pub(crate) fn body_as<T: JsonSchema>(self, media_types: &'static [&'static str]) -> Self {
        Self {
            body: Some((media_types, referenced::<T>)),
            ..self
        }
    }

    /// Sets the response, as JSON.
    pub(crate) fn response<T: JsonSchema>(self) -> Self {
        Self {
            response: Some(referenced::<T>),
            ..self
        }
    }

    /// Sets the media type of a streamed response.
    pub(crate) fn streams(self, media_type: &'static str) -> Self {
        Self {
            media_type,
            response: Some(referenced::<String>),
            ..self
        }
    }

    /// Sets the status of the response.
    pub(crate) fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Marks the route as one that needs no authentication.
    pub(crate) fn public(self) -> Self {
        Self {
            is_public: true,
            ..self
        }
    }
}

/// Returns the parameters that are part of a path.
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

/// Returns the parameters of a query, from the schema of its type.
fn in_query(schema: &Schema) -> Vec<Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let parameter = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|s| s.remove("description"));
        json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema})
    };
    properties.into_iter().flatten().map(parameter).collect()
}

/// A router that describes its routes.
pub(crate) struct ApiRouter {
    router: Router<Api>,
    generator: SchemaGenerator,
    paths: Map<String, Value>,
}

impl ApiRouter {
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

    /// Adds a route.
    pub(crate) fn add(mut self, path: &str, handler: MethodRouter<Api>, doc: RouteDoc) -> Self {
        let mut parameters: Vec<Value> = in_path(path).collect();
        if let Some(query) = doc.query {
            parameters.extend(in_query(&query(&mut self.generator)));
        }
        let problem = self.generator.subschema_for::<Problem>();
        let problem = json!({
            "description": "The request failed: `code` has the kind of problem, `detail` what is wrong and what is expected.",
            "content": {"application/problem+json": {"schema": problem}},
        });
        let success = match doc.response {
            None => json!({"description": "Success."}),
            Some(response) => {
                let schema = response(&mut self.generator);
                json!({"description": "Success.", "content": {doc.media_type: {"schema": schema}}})
            }
        };
        let mut operation = json!({
            "operationId": doc.id,
            "summary": doc.summary,
            "parameters": parameters,
            "responses": {doc.status.to_string(): success, "default": problem},
        });
        if let Some((media_types, body)) = doc.body {
            let schema = body(&mut self.generator);
            let content = |media_type: &&str| {
                let schema = match *media_type {
                    "application/json" => json!(schema),
                    _ => json!({"type": "string"}),
                };
                ((*media_type).to_owned(), json!({"schema": schema}))
            };
            let content: Map<String, Value> = media_types.iter().map(content).collect();
            operation["requestBody"] = json!({"required": true, "content": content});
        }
        if doc.is_public {
            operation["security"] = json!([]);
        }
        let operations = self.paths.entry(path.to_owned()).or_insert_with(|| json!({}));
        operations[doc.method] = operation;
        self.router = self.router.route(path, handler);
        self
    }

    /// Returns the router, and the OpenAPI document that describes it.
    pub(crate) fn finish(mut self) -> (Router<Api>, Value) {
        let schemas = self.generator.take_definitions(true);
        let document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Dovetail",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "The API of the scheduler. Times are microseconds since 1970. Errors are problem documents \
                                (RFC 9457) with a stable code.",
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
                        "description": "Set by signing in. Changes also need the header X-Csrf-Token.",
                    },
                },
            },
        });
        (self.router, document)
    }
}
