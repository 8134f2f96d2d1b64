//! What makes the document good for tools: where the gateway is, what leads from one call to the next, and what is in
//! an event stream.

use utoipa::Modify;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::link::Link;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::server::Server;
use utoipa::openapi::{OpenApi as Document, Ref, RefOr};

/// Says that the gateway is where the document is.
pub(super) struct Servers;

impl Modify for Servers {
    fn modify(&self, document: &mut Document) {
        let mut server = Server::new("/");
        server.description = Some("The gateway that serves this document.".into());
        document.servers = Some(vec![server]);
    }
}

/// Names first what the gateway is called from outside.
pub(super) fn served_at(document: &mut Document, url: &str) {
    let mut server = Server::new(url);
    server.description = Some("The gateway's public address.".into());
    document.servers.get_or_insert_default().insert(0, server);
}

/// Leads from what is made to the calls that take its id.
pub(super) struct Links;

/// An operation, its parameters, and where in the answer each is.
type Target = (&'static str, &'static [(&'static str, &'static str)]);

/// The answer to which call leads where: path, status and targets.
const LINKS: [(&str, &str, &[Target]); 2] = [
    (
        "/v1/sessions",
        "201",
        &[
            ("getSession", &[("session_id", "$response.body#/id")]),
            ("updateSession", &[("session_id", "$response.body#/id")]),
            ("hibernateSession", &[("session_id", "$response.body#/id")]),
            ("deleteSession", &[("session_id", "$response.body#/id")]),
            ("createTurn", &[("session_id", "$response.body#/id")]),
            ("listTurns", &[("session_id", "$response.body#/id")]),
            ("listMessages", &[("session_id", "$response.body#/id")]),
            ("listSessionPermissions", &[("session_id", "$response.body#/id")]),
            ("getPlan", &[("session_id", "$response.body#/id")]),
        ],
    ),
    (
        "/v1/sessions/{session_id}/turns",
        "202",
        &[
            ("getTurn", &[("session_id", "$response.body#/session_id"), ("turn_id", "$response.body#/id")]),
            (
                "cancelTurn",
                &[("session_id", "$response.body#/session_id"), ("turn_id", "$response.body#/id")],
            ),
        ],
    ),
];

impl Modify for Links {
    fn modify(&self, document: &mut Document) {
        for (path, status, links) in LINKS {
            let post = document.paths.paths.get_mut(path).and_then(|path| path.post.as_mut());
            let response = post.and_then(|post| post.responses.responses.get_mut(status));
            let Some(RefOr::T(response)) = response else { continue };
            for (operation, parameters) in links {
                let link = parameters
                    .iter()
                    .fold(Link::builder().operation_id(*operation), |link, (parameter, value)| {
                        link.parameter(*parameter, *value)
                    });
                response.links.insert((*operation).to_owned(), RefOr::T(link.build()));
            }
        }
    }
}

/// Describes the frames of event streams: tools that read server-sent events see each as an object of its fields.
pub(super) struct EventStreams;

impl Modify for EventStreams {
    fn modify(&self, document: &mut Document) {
        let data = ObjectBuilder::new()
            .schema_type(Type::String)
            .content_media_type("application/json")
            .description(Some("An `Event` as JSON, on one line."))
            .build();
        let frame = ObjectBuilder::new()
            .description(Some(
                "A server-sent event. Comments keep the stream alive, and bare `id` lines move the cursor.",
            ))
            .property("id", text("The cursor: goes into `Last-Event-ID` or `?after=`."))
            .property("event", text("The event's type. Left out with `?named=false`."))
            .property("data", data)
            .build();
        if let Some(components) = &mut document.components {
            components.schemas.insert("ServerSentEvent".into(), frame.into());
        }
        let operations =
            document.paths.paths.values_mut().flat_map(|path| [path.get.as_mut(), path.post.as_mut()]);
        for operation in operations.flatten() {
            for response in operation.responses.responses.values_mut() {
                let RefOr::T(response) = response else { continue };
                if let Some(content) = response.content.get_mut("text/event-stream") {
                    let schema = Ref::from_schema_name("ServerSentEvent");
                    *content = ContentBuilder::new().schema(Some(schema)).build().into();
                }
            }
        }
    }
}

fn text(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}
