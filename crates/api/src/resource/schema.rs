//! Pieces of schema that the derive cannot make.

use schemars::{Schema, SchemaGenerator, json_schema};

/// What the API server accepts as a reason.
const REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

pub(super) fn optional_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "nullable": true })
}

pub(super) fn reason(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": super::limit::REASON, "pattern": REASON })
}

pub(super) fn optional_reason(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": super::limit::REASON, "pattern": REASON, "nullable": true })
}

pub(super) fn optional_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Unrecognized", "Degraded", "Inaccessible", "DataLoss"] })
}

pub(super) fn count(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": u32::MAX })
}

pub(super) fn version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int64", "minimum": 0 })
}
