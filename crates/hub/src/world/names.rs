//! What is known by its name, for a caller that finds out which of it is gone.

use super::{Source, World};

impl World {
    /// All objects that are known from a source: the namespace, empty for an object that has none, and the name that it
    /// was put under. Of Leases that is the node.
    pub fn each_name(&self, source: Source, each: &mut dyn FnMut(&str, &str)) {
        match source {
            Source::Claims => self.claims.keys().for_each(|key| each(&key.namespace, &key.name)),
            Source::Volumes => self.volumes.keys().for_each(|name| each("", name)),
            Source::Pods => self.users.pods().for_each(|(namespace, name)| each(namespace, name)),
            Source::Stored => self.stored.keys().for_each(|key| each(&key.namespace, &key.name)),
            Source::Reports => self.reports.keys().for_each(|node| each("", node)),
            Source::Leases => self.agents.nodes().for_each(|node| each("", node)),
            Source::Backends => self.attachments.registered().for_each(|node| each("", node)),
            Source::Attachments => self.attachments.names().for_each(|name| each("", name)),
            // They are not put one by one.
            Source::Nodes | Source::NodesDown | Source::Controllers => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use jiff::Timestamp;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::Now;

    fn read<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object as the API server gives it")
    }

    fn names(world: &World, source: Source) -> Vec<String> {
        let mut names = Vec::new();
        world.each_name(source, &mut |namespace, name| names.push(format!("{namespace}/{name}")));
        names.sort();
        names
    }

    #[test]
    fn each_source_names_what_was_put_and_nothing_that_was_removed() {
        let mut world = World::default();
        let used = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}]);
        let attached = json!({"nodeName": "n", "source": {"persistentVolumeName": "pv"}});
        let now = Now { day: Timestamp::UNIX_EPOCH, clock: Instant::now() };
        for gone in [false, true] {
            let known = |namespace: &str, name: &str| {
                if gone { vec![] } else { vec![format!("{namespace}/{name}")] }
            };
            if !gone {
                world.put_claim("shop", "a", "uid", &read(json!({})));
                world.put_volume("pv", &read(json!({})));
                world.put_pod("shop", "web", &read(json!({"spec": {"nodeName": "n", "volumes": used}})));
                world.put_pod("shop", "uses-nothing", &read(json!({"spec": {"nodeName": "n"}})));
                world.put_stored("shop", "b", &read(json!({})));
                world.put_report("n1", &read(json!({})));
                world.put_lease(now, "n2", &read(json!({})));
                world.put_backends("n3", &read(json!({})));
                world.put_attachment("csi-x", &read(json!({"spec": attached})));
                world.put_attachment("inline", &read(json!({})));
            }
            assert_eq!(names(&world, Source::Claims), known("shop", "a"));
            assert_eq!(names(&world, Source::Volumes), known("", "pv"));
            assert_eq!(names(&world, Source::Pods), known("shop", "web"));
            assert_eq!(names(&world, Source::Stored), known("shop", "b"));
            assert_eq!(names(&world, Source::Reports), known("", "n1"));
            assert_eq!(names(&world, Source::Leases), known("", "n2"));
            assert_eq!(names(&world, Source::Backends), known("", "n3"));
            assert_eq!(names(&world, Source::Attachments), known("", "csi-x"));
            world.remove_claim("shop", "a");
            world.remove_volume("pv");
            world.remove_pod("shop", "web");
            world.remove_stored("shop", "b");
            world.remove_report("n1");
            world.remove_lease("n2");
            world.remove_csi_node("n3");
            world.remove_attachment("csi-x");
        }
    }
}
