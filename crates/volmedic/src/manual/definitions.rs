//! The definitions of our resources, as the API server takes them; `cargo xtask codegen` asks for them through the test.

use volmedic_api::resource;
use volmedic_view::render::yaml;

use super::generated;

const MARK: &str = "# Made by `cargo xtask codegen` from crates/api/src/resource. Do not edit.\n";

#[test]
fn every_resource_has_a_definition_with_its_own_name() {
    for (file, definition) in resource::definitions() {
        let plural = file.strip_suffix(".yaml").unwrap();
        assert_eq!(definition.metadata.name, Some(format!("{plural}.{}", resource::GROUP)));
        generated(file, &format!("{MARK}{}", yaml(&definition).unwrap()));
    }
}
