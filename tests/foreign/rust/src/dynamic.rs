//! Kinds that the program learns of while it runs: a definition made, found by discovery, used without types.
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
    },
    discovery::{Discovery, Scope, oneshot},
    runtime::wait::{await_condition, conditions},
};
use serde_json::{Value, from_value, json};
use tokio::time::{sleep, timeout};

use crate::World;

type Outcome = Result<(), Box<dyn std::error::Error>>;
const PATIENCE: Duration = Duration::from_secs(20);

pub async fn dynamically(world: &World) -> Outcome {
    let group = format!("{}.example.com", world.namespace);
    let name = format!("gadgets.{group}");
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let definition: CustomResourceDefinition = from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3, "maximum": 9}, "colour": {"type": "string"}}},
                    "status": {"type": "object", "properties": {"seen": {"type": "integer"}}},
                },
            }}}],
        },
    }))?;
    definitions.create(&PostParams::default(), &definition).await?;
    timeout(PATIENCE, await_condition(definitions.clone(), &name, conditions::is_crd_established())).await??;
    let (resource, _) = found(world, &GroupVersionKind::gvk(&group, "v1", "Gadget")).await?;
    world.tell(format!("discovered: {} of {}", resource.plural, resource.api_version));
    let gadgets: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
    let version = served(&gadgets).await?;
    let mut stream = std::pin::pin!(gadgets.watch(&WatchParams::default().timeout(20), &version).await?);
    let plain = PostParams::default();
    let made = gadgets.create(&plain, &gadget(&resource, "g", json!({"colour": "red", "unknown": true}))).await?;
    world.tell(format!("create: {}, generation {:?}", made.data["spec"], made.metadata.generation));
    world.refused("create what is not valid", gadgets.create(&plain, &gadget(&resource, "h", json!({"size": 10}))).await);
    let status = Patch::Merge(json!({"status": {"seen": 5}}));
    let seen = gadgets.patch_status("g", &PatchParams::default(), &status).await?;
    world.tell(format!("status: {}, generation {:?}", seen.data["status"], seen.metadata.generation));
    let patched = gadgets.patch("g", &PatchParams::default(), &Patch::Merge(json!({"spec": {"colour": "blue"}}))).await?;
    world.tell(format!("patch: {}, generation {:?}", patched.data["spec"], patched.metadata.generation));
    world.refused("a strategic patch", gadgets.patch("g", &PatchParams::default(), &Patch::Strategic(json!({}))).await);
    let list = gadgets.list(&ListParams::default()).await?;
    world.tell(format!("list: {:?}", list.items.iter().map(|one| one.name_any()).collect::<Vec<_>>()));
    gadgets.delete("g", &DeleteParams::default()).await?;
    for _ in 0..4 {
        world.tell(match timeout(PATIENCE, stream.try_next()).await?? {
            Some(WatchEvent::Added(one)) => format!("added {}", one.data["spec"]),
            Some(WatchEvent::Modified(one)) => format!("modified {}", one.data["spec"]),
            Some(WatchEvent::Deleted(one)) => format!("deleted {}", one.data["spec"]),
            other => format!("{other:?}"),
        });
    }
    definitions.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

fn gadget(resource: &ApiResource, name: &str, spec: Value) -> DynamicObject {
    DynamicObject::new(name, resource).data(json!({"spec": spec}))
}

/// A real server shows a new kind in discovery a moment after it has said that it is established.
async fn found(
    world: &World,
    kind: &GroupVersionKind,
) -> Result<(ApiResource, kube::discovery::ApiCapabilities), Box<dyn std::error::Error>> {
    let look = async {
        loop {
            match oneshot::pinned_kind(&world.client, kind).await {
                Ok(found) => return found,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    Ok(timeout(PATIENCE, look).await?)
}

/// The version of the first list that succeeds.
async fn served(api: &Api<DynamicObject>) -> Result<String, Box<dyn std::error::Error>> {
    let look = async {
        loop {
            match api.list(&ListParams::default()).await {
                Ok(list) => return list.metadata.resource_version.unwrap_or_default(),
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    Ok(timeout(PATIENCE, look).await?)
}

pub async fn discovering(world: &World) -> Outcome {
    let version = world.client.apiserver_version().await?;
    world.tell(format!("version: {}.{}", version.major, version.minor));
    let discovery = Discovery::new(world.client.clone()).filter(&["apps", "batch", "autoscaling"]).run_aggregated().await?;
    let mut lines = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let scope = if capabilities.scope == Scope::Namespaced { "namespaced" } else { "cluster" };
            let below: Vec<String> = capabilities.subresources.iter().map(|(one, _)| one.plural.clone()).collect();
            lines.push(format!(
                "{} {} is {scope}: {}; below it {}",
                resource.api_version,
                resource.kind,
                capabilities.operations.join(","),
                below.join(" ")
            ));
        }
    }
    lines.sort(); // groups come in the order of a hash map
    lines.iter().for_each(|line| world.tell(line));
    let older = Discovery::new(world.client.clone()).filter(&["apps"]).run().await?;
    let kinds: Vec<String> = older.groups().flat_map(|group| group.recommended_resources()).map(|(resource, _)| resource.kind).collect();
    world.tell(format!("by the older documents: {}", kinds.join(" ")));
    Ok(())
}
