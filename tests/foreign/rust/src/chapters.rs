//! Typed objects: one ConfigMap's life, lists by pages, workloads and their subresources, server-side apply.
use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, from_value, json};

use crate::World;

type Outcome = Result<(), Box<dyn std::error::Error>>;

pub fn config_map(name: &str, data: Value) -> ConfigMap {
    from_value(json!({"metadata": {"name": name, "labels": {"by": "foreign"}}, "data": data})).expect("a ConfigMap")
}

pub fn shown(data: &Option<BTreeMap<String, String>>) -> String {
    let parts: Vec<String> = data.iter().flatten().map(|(name, value)| format!("{name}={value}")).collect();
    parts.join(",")
}

pub async fn typed(world: &World) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    let plain = PostParams::default();
    let made = maps.create(&plain, &config_map("a", json!({"k": "v"}))).await?;
    world.tell(format!(
        "create: {}, has uid {}, has version {}",
        shown(&made.data),
        made.uid().is_some(),
        made.resource_version().is_some()
    ));
    world.refused("create again", maps.create(&plain, &config_map("a", json!({}))).await);
    world.refused("create under a bad name", maps.create(&plain, &config_map("Bad", json!({}))).await);
    let mut newer = made.clone();
    newer.data = Some([("k".to_string(), "w".to_string())].into());
    let replaced = maps.replace("a", &plain, &newer).await?;
    world.tell(format!("replace: {}, other version {}", shown(&replaced.data), replaced.resource_version() != made.resource_version()));
    world.refused("replace an old version", maps.replace("a", &plain, &newer).await);
    let dry = maps.replace("a", &PostParams { dry_run: true, ..plain.clone() }, &config_map("a", json!({"dry": "run"}))).await?;
    world.tell(format!("dry run: {}", shown(&dry.data)));
    let manager = PatchParams::default();
    let merged = maps.patch("a", &manager, &Patch::Merge(json!({"data": {"merged": "yes", "k": null}}))).await?;
    world.tell(format!("merge patch: {}", shown(&merged.data)));
    let strategic = maps.patch("a", &manager, &Patch::Strategic(json!({"data": {"strategic": "yes"}}))).await?;
    world.tell(format!("strategic patch: {}", shown(&strategic.data)));
    let operations = from_value(json!([{"op": "move", "from": "/data/merged", "path": "/data/moved"}]))?;
    let moved = maps.patch("a", &manager, &Patch::Json::<()>(operations)).await?;
    world.tell(format!("JSON patch: {}", shown(&moved.data)));
    let refused = from_value(json!([{"op": "test", "path": "/data/moved", "value": "no"}]))?;
    world.refused("a test that fails", maps.patch("a", &manager, &Patch::Json::<()>(refused)).await);
    world.tell(format!("get: {}", shown(&maps.get("a").await?.data)));
    world.tell(format!("metadata: labels {:?}", maps.get_metadata("a").await?.labels()));
    world.refused("get what is not there", maps.get("b").await);
    world.tell(format!("get what may not be there: {}", maps.get_opt("b").await?.is_some()));
    let own = Preconditions { uid: made.uid(), resource_version: None };
    let deleted = maps.delete("a", &DeleteParams::default().preconditions(own)).await?;
    world.tell(format!("delete: done at once {}", deleted.is_right()));
    world.refused("delete again", maps.delete("a", &DeleteParams::default()).await);
    let bytes: Secret = from_value(json!({"metadata": {"name": "s"}, "stringData": {"text": "secret"}, "data": {"raw": "AQL/"}}))?;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let kept = secrets.create(&plain, &bytes).await?;
    world.tell(format!("secret: {:?} {:?}", kept.type_, kept.data));
    Ok(())
}

pub async fn paging(world: &World) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    for at in 0..7 {
        let mut one = config_map(&format!("page-{at}"), json!({}));
        one.labels_mut().insert("parity".into(), if at % 2 == 0 { "even" } else { "odd" }.into());
        maps.create(&PostParams::default(), &one).await?;
    }
    let mut options = ListParams::default().labels("by=foreign").limit(3);
    loop {
        let page = maps.list(&options).await?;
        let names: Vec<String> = page.items.iter().map(|one| one.name_any()).collect();
        world.tell(format!("page: {}, left {:?}", names.join(" "), page.metadata.remaining_item_count));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => options = options.continue_token(&token),
            None => break,
        }
    }
    world.tell(format!("left without a selector: {:?}", maps.list(&ListParams::default().limit(2)).await?.metadata.remaining_item_count));
    world.tell(format!("by field: {}", maps.list(&ListParams::default().fields("metadata.name=page-4")).await?.items.len()));
    world.tell(format!("metadata: {}", maps.list_metadata(&ListParams::default().labels("parity=odd")).await?.items.len()));
    world.refused("a field that cannot be selected", maps.list(&ListParams::default().fields("data.k=v")).await);
    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("parity=odd")).await?;
    world.tell(format!(
        "left after the odd ones were deleted: {}",
        maps.list(&ListParams::default().labels("by=foreign")).await?.items.len()
    ));
    Ok(())
}

pub async fn workloads(world: &World) -> Outcome {
    let containers = json!([{"name": "web", "image": "nginx:1.29", "resources": {"requests": {"cpu": "0.5"}}}]);
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    let plain = PostParams::default();
    let pod = pods.create(&plain, &from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": containers}}))?).await?;
    let spec = pod.spec.clone().unwrap_or_default();
    world.tell(format!(
        "pod: {:?} {:?} {:?}, requests {:?}",
        spec.restart_policy, spec.dns_policy, spec.service_account_name, spec.containers[0].resources
    ));
    let status = json!({"status": {"phase": "Running", "podIPs": [{"ip": "10.1.2.3"}]}});
    let running = pods.patch_status("p", &PatchParams::default(), &Patch::Merge(status)).await?;
    world.tell(format!("pod status: {:?}", running.status.map(|status| (status.phase, status.pod_ip))));
    world.refused(
        "pod without containers",
        pods.create(&plain, &from_value(json!({"metadata": {"name": "bad"}, "spec": {"containers": []}}))?).await,
    );
    pods.delete("p", &DeleteParams::default().grace_period(0)).await?;
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), &world.namespace);
    let labels = json!({"app": "web"});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 0, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    }});
    let made = deployments.create(&plain, &from_value(deployment)?).await?;
    world.tell(format!("deployment: generation {:?}, strategy {:?}", made.metadata.generation, made.spec.and_then(|spec| spec.strategy)));
    let scaled = deployments.patch_scale("d", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 3}}))).await?;
    world.tell(format!("scale: {:?} {:?}", scaled.spec, scaled.status));
    world.tell(format!("scale, read again: {:?}", deployments.get_scale("d").await?.spec));
    let restarted = deployments.restart("d").await?;
    world.tell(format!("restart: generation {:?}", restarted.metadata.generation));
    Ok(())
}

pub async fn applying(world: &World) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    let wanted =
        |data: Value| Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data}));
    let mine = maps.patch("applied", &PatchParams::apply("mine"), &wanted(json!({"a": "1", "b": "1"}))).await?;
    world.tell(format!("create: {}; {}", shown(&mine.data), managers(&mine)));
    world.refused("a conflict", maps.patch("applied", &PatchParams::apply("theirs"), &wanted(json!({"a": "2", "c": "2"}))).await);
    let forced = maps.patch("applied", &PatchParams::apply("theirs").force(), &wanted(json!({"a": "2", "c": "2"}))).await?;
    world.tell(format!("forced: {}; {}", shown(&forced.data), managers(&forced)));
    let less = maps.patch("applied", &PatchParams::apply("theirs"), &wanted(json!({"c": "2"}))).await?;
    world.tell(format!("less than before: {}", shown(&less.data)));
    Ok(())
}

fn managers(object: &ConfigMap) -> String {
    let fields: Vec<String> = object
        .managed_fields()
        .iter()
        .map(|one| {
            format!(
                "{:?} {:?} {}",
                one.manager,
                one.operation,
                one.fields_v1.as_ref().map(|fields| fields.0.to_string()).unwrap_or_default()
            )
        })
        .collect();
    fields.join(", ")
}
