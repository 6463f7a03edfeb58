//! Watches: the raw stream of events, and a reflector that fills a store by list and by stream.
use std::{pin::pin, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams},
    runtime::{reflector, watcher},
};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    World,
    chapters::{config_map, shown},
};

type Outcome = Result<(), Box<dyn std::error::Error>>;
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes, changes and removes a ConfigMap.
async fn change(maps: &Api<ConfigMap>, name: &str) -> kube::Result<()> {
    let made = maps.create(&PostParams::default(), &config_map(name, json!({"step": "1"}))).await?;
    let mut newer = made.clone();
    newer.data = Some([("step".to_string(), "2".to_string())].into());
    maps.replace(name, &PostParams::default(), &newer).await?;
    maps.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

pub async fn watching(world: &World) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    let version = maps.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    let labels = WatchParams::default().labels("by=foreign").timeout(20);
    let mut stream = pin!(maps.watch(&labels, &version).await?);
    change(&maps, "watched").await?;
    for _ in 0..3 {
        world.tell(timeout(PATIENCE, stream.try_next()).await??.map_or("the stream ended".into(), event));
    }
    maps.create(&PostParams::default(), &config_map("before", json!({}))).await?;
    let mut stream = pin!(maps.watch(&labels.clone().initial_events(), "0").await?);
    for _ in 0..2 {
        world.tell(timeout(PATIENCE, stream.try_next()).await??.map_or("the stream ended".into(), event));
    }
    let mut stream = pin!(maps.watch(&labels.timeout(1), &version).await?);
    let mut seen = 0;
    while let Some(one) = timeout(PATIENCE, stream.try_next()).await?? {
        seen += usize::from(!matches!(one, WatchEvent::Bookmark(_)));
    }
    world.tell(format!("from the beginning to the end of a second: {seen}"));
    world.refused("a version that is none", maps.watch(&WatchParams::default(), "nonsense").await);
    Ok(())
}

fn event(event: WatchEvent<ConfigMap>) -> String {
    match event {
        WatchEvent::Added(one) => format!("added {} {}", one.name_any(), shown(&one.data)),
        WatchEvent::Modified(one) => format!("modified {} {}", one.name_any(), shown(&one.data)),
        WatchEvent::Deleted(one) => format!("deleted {} {}", one.name_any(), shown(&one.data)),
        WatchEvent::Bookmark(mark) => format!("bookmark of {} {:?}", mark.types.kind, mark.metadata.annotations),
        WatchEvent::Error(status) => format!("error {} {}", status.code, status.message),
    }
}

pub async fn reflecting(world: &World) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    for name in ["one", "two", "three"] {
        maps.create(&PostParams::default(), &config_map(name, json!({}))).await?;
    }
    let labels = watcher::Config::default().labels("by=foreign");
    for (how, config) in [("list", labels.clone().page_size(2)), ("stream", labels.streaming_lists())] {
        let (reader, writer) = reflector::store();
        let mut stream = pin!(reflector(writer, watcher(maps.clone(), config)));
        while !matches!(next(&mut stream).await?, watcher::Event::InitDone) {}
        let mut names: Vec<String> = reader.state().iter().map(|one| one.name_any()).collect();
        names.sort();
        world.tell(format!("by {how}: {}", names.join(" ")));
        change(&maps, "four").await?;
        for _ in 0..3 {
            world.tell(match next(&mut stream).await? {
                watcher::Event::Apply(one) => format!("by {how}: has {} {}", one.name_any(), shown(&one.data)),
                watcher::Event::Delete(one) => format!("by {how}: lost {}", one.name_any()),
                _ => format!("by {how}: begins anew"),
            });
        }
        world.tell(format!("by {how}, afterwards: {} objects", reader.state().len()));
    }
    Ok(())
}

async fn next<S>(stream: &mut S) -> Result<watcher::Event<ConfigMap>, Box<dyn std::error::Error>>
where
    S: Stream<Item = Result<watcher::Event<ConfigMap>, watcher::Error>> + Unpin,
{
    Ok(timeout(PATIENCE, stream.next()).await?.ok_or("the stream ended")??)
}
